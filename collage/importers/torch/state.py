"""Buffers that a program changes and computes with, as inputs and outputs of it.

What is compiled keeps nothing between calls. So whoever calls it gives what such a buffer holds,
and gets what it holds afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from collage.backends.contract.errors import ModelError
from collage.importers.torch.courses.hoisting import functional
from collage.importers.torch.nodes import as_array, type_name
from collage.importers.torch.operators.errors import NORMS_BY_BATCH
from collage.importers.torch.structure import RESULTS, is_copy_of, signature_of
from collage.state import StateTensor

_INPUT = "state_{}"

_KEPT = (InputKind.BUFFER, InputKind.PARAMETER)
_CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


def with_state(program: ExportedProgram) -> tuple[ExportedProgram, tuple[StateTensor, ...]]:
    """A program that takes and gives what it keeps in buffers; itself, where it keeps nothing.

    Parameters
    ----------
    program : ExportedProgram
        All of its inputs' extents are numbers; not changed.

    Returns
    -------
    ExportedProgram
        With these tensors behind its other inputs, by name, and beside its results.
    tuple of StateTensor
        By the buffers' names.

    Raises
    ------
    ModelError
        When it was exported in training mode.

    Examples
    --------
    >>> class Count(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.register_buffer("calls", torch.zeros(()))
    ...
    ...     def forward(self, x):
    ...         self.calls += 1
    ...         return x * self.calls
    >>> with_state(torch.export.export(Count(), (torch.zeros(4),)))[1]
    (StateTensor(name='calls', input=1, output=1, fill=0.0, data=b'', file=''),)
    """
    if not _may_change(program):
        return program, ()
    found = functional(program)
    kept = _kept(found)
    if not kept:
        return program, ()
    return _lifted(found, kept)


def _may_change(program: ExportedProgram) -> bool:
    """Whether it writes into what it keeps, as far as that can be told without taking it apart.

    Raises
    ------
    ModelError
        When that gets another shape or type there.
    """
    specs = program.graph_signature
    if any(spec.kind in _CHANGES for spec in specs.output_specs):
        return True
    kept = {spec.arg.name: spec.target for spec in specs.input_specs if spec.kind in _KEPT}
    if constants := written_constants(program):
        raise ModelError(
            f"the model writes into a tensor that is none of its buffers ('{constants[0]}'): one "
            "of the program's outside, or by its 'data'; keep it in a buffer (register_buffer)",
            value=constants,
        )
    found = [
        (node, base)
        for node, base in writing(program)
        if base.name in kept or node.graph is not program.graph
    ]
    for node, base in found:
        if node.target is torch.ops.aten.copy_.default and node.args[0] is base:
            _require_same_type(kept.get(base.name, base.name), base, node.args[1])
    return bool(kept and found)


def written_constants(program: ExportedProgram) -> list[str]:
    """The tensors that are neither parameters nor buffers, and that a program writes into.

    Parameters
    ----------
    program : ExportedProgram
        As it was exported.

    Returns
    -------
    list of str
        As the program calls them.
    """
    specs = program.graph_signature.input_specs
    found = {s.arg.name: s.target for s in specs if s.kind is InputKind.CONSTANT_TENSOR}
    if not found:
        return []
    bases = (base for node, base in writing(program) if node.graph is program.graph)
    return list(dict.fromkeys(found[base.name] for base in bases if base.name in found))


def writing(program: ExportedProgram) -> Iterator[tuple[fx.Node, fx.Node]]:
    """The operators that write, and into which inputs and weights."""
    for graph in _graphs(program):
        for node in graph.nodes:
            for written in written_by(node):
                for base in _bases(written):
                    yield node, base


def _graphs(program: ExportedProgram) -> Iterator[fx.Graph]:
    """The program's, and those of bodies, which are given operands of its."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            yield module.graph


def _require_same_type(name: str, old: fx.Node, new: Any) -> None:
    before, after = (node.meta.get("val") for node in (old, new))
    if before is None or after is None:
        return
    shown = [f"{type_name(one.dtype)}{list(one.shape)}" for one in (before, after)]
    if shown[0] != shown[1]:
        raise ModelError(
            f"the model makes {shown[1]} of its buffer '{name}', which is {shown[0]}: what is kept "
            "from call to call has one shape and type; write into a part of it (index_copy_)",
            value=name,
        )


def written_by(node: fx.Node) -> Iterator[fx.Node]:
    """The operands that an operator writes into."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    named = {argument.name: argument for argument in schema.arguments}
    pairs = [*zip(schema.arguments, node.args, strict=False)]
    pairs += [(named[name], value) for name, value in node.kwargs.items() if name in named]
    for argument, value in pairs:
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _nodes(value)


def views_through(node: fx.Node) -> Iterator[fx.Node]:
    """A tensor, and all those that it may be a view of, by way of any number of views."""
    waiting, seen = [node], {node}
    while waiting:
        found = waiting.pop()
        yield found
        schema = getattr(found.target, "_schema", None)
        sources = list(_nodes(found.args[0])) if found.args and schema is None else []
        if schema is not None:
            pairs = zip(schema.arguments, found.args, strict=False)
            aliased = [value for argument, value in pairs if argument.alias_info is not None]
            sources = [one for value in aliased for one in _nodes(value)]
        waiting += [one for one in sources if one not in seen]
        seen.update(sources)


def _bases(node: fx.Node) -> Iterator[fx.Node]:
    """The inputs and weights that a tensor may be a view of."""
    return (found for found in views_through(node) if found.op == "placeholder")


def _nodes(value: Any) -> Iterator[fx.Node]:
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _nodes(one)


def _kept(program: ExportedProgram) -> list[str]:
    """The buffers that it changes and that its results depend on, by way of others or not."""
    specs = program.graph_signature
    (output,) = program.graph.find_nodes(op="output")
    pairs = list(zip(output.args[0], specs.output_specs, strict=True))
    inputs = {s.arg.name: s.target for s in specs.input_specs if s.kind in _KEPT}
    names = {target: name for name, target in inputs.items()}
    new = {
        spec.target: value
        for value, spec in pairs
        if spec.kind in _CHANGES and not is_copy_of(value, names[spec.target])
    }
    waiting = [value for value, spec in pairs if spec.kind in RESULTS]
    seen: set[fx.Node] = set()
    found: set[str] = set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, fx.Node) or node in seen:
            continue
        seen.add(node)
        waiting += node.all_input_nodes
        target = inputs.get(node.name) if node.op == "placeholder" else None
        if target is not None and target in new and target not in found:
            _require_evaluated(node, target)
            found.add(target)
            waiting.append(new[target])
    return [target for target in new if target in found]


def _require_evaluated(buffer: fx.Node, target: str) -> None:
    """Refuse statistics of a batch norm that normalizes by what it is given."""
    if any("batch_norm" in str(user.target) for user in buffer.users):
        raise ModelError(f"the program {NORMS_BY_BATCH}", value=target)


def _lifted(
    program: ExportedProgram, kept: list[str]
) -> tuple[ExportedProgram, tuple[StateTensor, ...]]:
    """A program of its own, changed here: in place of buffers inputs and outputs, the last ones."""
    graph, specs = program.graph, program.graph_signature
    inputs, buffers = _parted(specs.input_specs, _KEPT, kept)
    outputs, changes = _parted(specs.output_specs, _CHANGES, kept)
    placeholders = {node.name: node for node in graph.find_nodes(op="placeholder")}
    last = list(placeholders.values())[-1]
    taken, given = _tensors(inputs, (InputKind.USER_INPUT,)), _tensors(outputs, RESULTS)
    known = {spec.arg.name for spec in inputs if spec.kind is InputKind.USER_INPUT}
    known.update(signature_of(program).output_names())
    for index, target in enumerate(kept):
        last = _input_for(placeholders[buffers[target].arg.name], last, _INPUT.format(index))
        inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(last.name), None))
    # What is given may be what was kept, which is called otherwise by now.
    (output,) = graph.find_nodes(op="output")
    pairs = list(zip(output.args[0], specs.output_specs, strict=True))
    values = [value for value, spec in pairs if spec in outputs]
    for value, spec in zip(values, outputs, strict=True):
        if isinstance(value, fx.Node):
            spec.arg = TensorArgument(value.name)
    tensors = {**program.constants, **program.state_dict}
    state = []
    for index, target in enumerate(kept):
        values.append(_as_real(next(value for value, spec in pairs if spec is changes[target])))
        outputs.append(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(values[-1].name), None))
        tensor = tensors[target]
        initial = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        name = target
        while name in known:
            name += "_state"
        known.add(name)
        state.append(StateTensor.of(name, taken + index, given + index, as_array(initial)))
    output.args = (tuple(values),)
    lifted = ExportedProgram(
        *(program.graph_module, graph, ExportGraphSignature(inputs, outputs)),
        {name: held for name, held in program.state_dict.items() if name not in kept},
        *(dict(program.range_constraints), _called(program, len(kept))),
        constants={name: held for name, held in program.constants.items() if name not in kept},
        verifiers=program.verifiers,
    )
    return lifted, tuple(state)


def _parted(
    specs: list[Any], kinds: Collection[Any], kept: list[str]
) -> tuple[list[Any], dict[str, Any]]:
    """What is not of the buffers that are kept, and what is, by buffer."""
    found = {spec.target: spec for spec in specs if spec.kind in kinds and spec.target in kept}
    return [spec for spec in specs if found.get(spec.target) is not spec], found


def _tensors(specs: list[Any], kinds: Collection[Any]) -> int:
    return sum(spec.kind in kinds and isinstance(spec.arg, TensorArgument) for spec in specs)


def _input_for(buffer: fx.Node, behind: fx.Node, name: str) -> fx.Node:
    """An input in a buffer's place, behind another; complex numbers come as pairs."""
    graph, value = buffer.graph, buffer.meta["val"]
    with graph.inserting_after(behind):
        made = graph.placeholder(name)
    made.meta = {**buffer.meta, "val": value}
    used = made
    if value.is_complex():
        made.meta["val"] = torch.ops.aten.view_as_real.default(value)
        with graph.inserting_before(_first(graph)):
            used = graph.call_function(torch.ops.aten.view_as_complex.default, (made,))
        used.meta["val"] = value
    buffer.replace_all_uses_with(used)
    graph.erase_node(buffer)
    return made


def _first(graph: fx.Graph) -> fx.Node:
    return next(node for node in graph.nodes if node.op != "placeholder")


def _as_real(value: fx.Node) -> fx.Node:
    like = value.meta["val"]
    if not like.is_complex():
        return value
    (output,) = value.graph.find_nodes(op="output")
    with value.graph.inserting_before(output):
        found = value.graph.call_function(torch.ops.aten.view_as_real.default, (value,))
    found.meta["val"] = torch.ops.aten.view_as_real.default(like)
    return found


def _called(program: ExportedProgram, count: int) -> list[Any]:
    """How it is called: with so many more tensors by name, which it gives beside its results."""
    first, *others = program.module_call_graph
    args, kwargs = first.signature.in_spec.children()
    names = [_INPUT.format(index) for index in range(count)]
    leaves = [pytree.treespec_leaf() for _ in names]
    named = pytree.TreeSpec(dict, [*kwargs.context, *names], [*kwargs.children(), *leaves])
    known = first.signature.forward_arg_names
    signature = replace(
        first.signature,
        in_spec=pytree.TreeSpec(tuple, None, [args, named]),
        out_spec=pytree.TreeSpec(
            tuple, None, [first.signature.out_spec, pytree.TreeSpec(list, None, leaves)]
        ),
        forward_arg_names=[*known, *names] if known else known,
    )
    return [replace(first, signature=signature), *others]
