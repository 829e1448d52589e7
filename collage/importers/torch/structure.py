"""How tensors lie in what an exported program takes and gives."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from collage.backends.contract.errors import ModelError
from collage.state import StateTensor
from collage.structure import Fields, Fixed, FixedTensor, Items, Leaf, Signature, Structure, Written

RESULTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
"""Outputs that callers get."""


def signature_of(
    program: torch.export.ExportedProgram,
    state: tuple[StateTensor, ...] = (),
    written: tuple[str, ...] = (),
) -> Signature:
    """What a program is called with and what it gives, as plain data.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As :func:`collage.importers.torch.state.with_state` gives it.
    state : tuple of StateTensor
        What it keeps.
    written : tuple of str
        The inputs that it writes into, see
        :func:`collage.importers.torch.written.with_written`.

    Returns
    -------
    Signature
        What it keeps lies behind the rest, and what it writes before that.

    Raises
    ------
    ModelError
        When something is neither a tensor nor a plain value, or no tensor comes out.
    """
    found = program.graph_signature
    taken = [spec.arg for spec in found.input_specs if spec.kind is InputKind.USER_INPUT]
    given = [spec.arg for spec in found.output_specs if spec.kind in RESULTS]
    leaves = _places(taken)
    args, kwargs = program.call_spec.in_spec.children()
    parameters = [_structure(each, leaves) for each in [*args.children(), *kwargs.children()]]
    names = _parameter_names(program, args.num_children, list(kwargs.context or ()))
    result = _structure(program.call_spec.out_spec, _places(given))
    if state:
        names, parameters = names[: -len(state)], parameters[: -len(state)]
        assert isinstance(result, Items), "beside what it gives stands what it keeps"
        result = result.children[0]
    if written:
        assert isinstance(result, Items), "beside what it gives stands what it writes"
        result = result.children[0]
    tensors = [arg.name for arg in taken if isinstance(arg, TensorArgument)]
    first = sum(isinstance(arg, TensorArgument) for arg in given) - len(written) - len(state)
    places = [Written(tensors.index(one), first + i) for i, one in enumerate(written)]
    if not any(isinstance(arg, TensorArgument) for arg in given):
        raise ModelError("the program gives no tensor back", value=str(result))
    # What other parameters are by default nobody knows.
    optional = [name for name, one in zip(names, parameters, strict=True) if _is_nothing(one)]
    return Signature(
        names=names,
        parameters=tuple(parameters),
        result=result,
        positional=args.num_children,
        optional=tuple(optional),
        state=state,
        written=tuple(places),
    )


def as_forward_takes(signature: Signature, forward: inspect.Signature) -> Signature:
    """The signature of a module's program, with the parameters that its examples left out.

    A program knows what it was exported with, not what else there is between those, nor what may be
    left out: a call by position would give one parameter what is another's.

    Parameters
    ----------
    signature : Signature
        The program's.
    forward : inspect.Signature
        Of the module's ``forward``.

    Returns
    -------
    Signature
        The same but for parameters and their order.
    """
    left = dict(zip(signature.names, signature.parameters, strict=True))
    found: dict[str, Structure] = {}
    optional: list[str] = []
    positional: int | None = None
    for name, parameter in forward.parameters.items():
        default = parameter.default
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            found.update({key: left.pop(key) for key in list(left) if key.startswith(f"{name}_")})
        if parameter.kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            positional = len(found) if positional is None else positional
        if name in left:
            found[name] = left.pop(name)
        elif _is_plain(default):
            found[name] = Fixed(default)
        else:
            # What is not given and cannot be written down ends what may be given by position.
            positional = len(found) if positional is None else positional
            continue
        if _is_same(found[name], default):
            optional.append(name)
    found.update(left)
    return msgspec.structs.replace(
        signature,
        names=tuple(found),
        parameters=tuple(found.values()),
        positional=len(found) - len(left) if positional is None else positional,
        optional=tuple(optional),
    )


def with_fixed(signature: Signature, fixed: tuple[FixedTensor, ...]) -> Signature:
    """The signature of a program for which numbers of some inputs were compiled in.

    Parameters
    ----------
    signature : Signature
        As it is without that.
    fixed : tuple of FixedTensor
        These inputs.

    Returns
    -------
    Signature
        The same but for that.

    Warns
    -----
    UserWarning
        Which they are.
    """
    if not fixed:
        return signature
    names = ", ".join(f"'{signature.input_names()[one.input]}'" for one in fixed)
    warnings.warn(
        f"what runs depends on the numbers in {names}: the model is compiled for those of its "
        "example inputs, and a call with others is an error",
        stacklevel=2,
    )
    return msgspec.structs.replace(signature, fixed=fixed)


def _is_same(structure: Structure, value: Any) -> bool:
    if not isinstance(structure, Fixed) or type(structure.value) is not type(value):
        return False
    return bool(structure.value == value)


def _is_nothing(structure: Structure) -> bool:
    return isinstance(structure, Fixed) and structure.value is None


def keep_tensors(program: torch.export.ExportedProgram) -> None:
    """Take out of a program what is neither input nor result: plain values, which were compiled in,
    and new values of buffers that no result depends on.

    Raises
    ------
    ModelError
        When its results depend on what earlier calls left behind, and that is no input of it.
    """
    graph, found = program.graph, program.graph_signature
    (output,) = graph.find_nodes(op="output")
    pairs = list(zip(output.args[0], found.output_specs, strict=True))
    kept = [(value, spec) for value, spec in pairs if _is_tensor_result(spec)]
    sources = {spec.target: spec.arg.name for spec in found.input_specs if spec.target}
    same = {s.target for value, s in pairs if is_copy_of(value, sources.get(s.target))}
    output.args = (tuple(value for value, _ in kept),)
    graph.eliminate_dead_code()
    _require_stateless(program, same)
    plain = {
        spec.arg.name
        for spec in found.input_specs
        if spec.kind is InputKind.USER_INPUT and not isinstance(spec.arg, TensorArgument)
    }
    for node in graph.find_nodes(op="placeholder"):
        if node.name in plain:
            graph.erase_node(node)
    found.input_specs = [spec for spec in found.input_specs if spec.arg.name not in plain]
    found.output_specs = [spec for _, spec in kept]


def _is_tensor_result(spec: Any) -> bool:
    return spec.kind in RESULTS and isinstance(spec.arg, TensorArgument)


_COPIES = frozenset(["alias", "clone", "detach", "detach_", "_to_copy", "lift_fresh_copy", "copy"])
"""Operators that may give what they are given."""


def is_copy_of(value: Any, name: str | None) -> bool:
    """Whether a value is that of another node, by way of any number of copies.

    Parameters
    ----------
    value : object
        A node, or a plain value.
    name : str or None
        The other node's.

    Returns
    -------
    bool
        Where it is certain.
    """
    return _origin(value) == name


def _origin(value: Any) -> str | None:
    """The name of what a value is a copy of, by way of any number of copies."""
    while isinstance(value, torch.fx.Node) and value.op == "call_function":
        if value.target.__name__.split(".")[0] not in _COPIES:
            break
        source = value.args[1 if value.target.__name__.startswith("copy.") else 0]
        if source.meta["val"].dtype != value.meta["val"].dtype:
            break
        value = source
    return getattr(value, "name", None)


def _require_stateless(program: torch.export.ExportedProgram, same: set[str | None]) -> None:
    """What is written must not be asked for by a later call, but for what became an input.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Without what no result depends on.
    same : set of str
        What is written with what it holds.
    """
    found = program.graph_signature
    used = {node.name: list(node.users) for node in program.graph.find_nodes(op="placeholder")}
    sources = {spec.target: spec.arg.name for spec in found.input_specs if spec.target}
    for spec in found.output_specs:
        readers = used.get(sources.get(spec.target, ""))
        if spec.kind is OutputKind.BUFFER_MUTATION and readers and spec.target not in same:
            raise ModelError(
                f"the model changes its buffer '{spec.target}' and its results depend on it, in a "
                "way that cannot be followed; take it as an input and give it back",
                value=spec.target,
            )


def _places(arguments: list[Any]) -> Iterator[Structure]:
    """Tensors by their place among tensors, and plain values."""
    count = 0
    for argument in arguments:
        if isinstance(argument, TensorArgument):
            yield Leaf(count)
            count += 1
        elif isinstance(argument, ConstantArgument) and _is_plain(argument.value):
            yield Fixed(argument.value)
        else:
            raise ModelError(
                f"'{getattr(argument, 'name', argument)}' is neither a tensor nor None, a number "
                "or text; only such can be taken and given",
                value=str(argument),
            )


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)


def _structure(spec: pytree.TreeSpec, leaves: Iterator[Structure]) -> Structure:
    if spec.is_leaf():
        return next(leaves)
    children = tuple(_structure(child, leaves) for child in spec.children())
    if spec.type in (tuple, list):
        return Items("list" if spec.type is list else "tuple", children)
    fields = getattr(spec.context, "_fields", None)
    if fields is not None:
        return Fields("named_tuple", tuple(fields), children, spec.context.__name__)
    keys = _keys(spec)
    if any(not isinstance(key, str | int) for key in keys):
        raise ModelError(f"keys must be text or whole numbers, not {keys[0]!r}", value=keys)
    return Fields("dict", tuple(keys), children)


def _keys(spec: pytree.TreeSpec) -> list[Any]:
    """Of a dict, or of whatever else PyTorch was told how to take apart."""
    listed = spec.context if isinstance(spec.context, list) else []
    if len(listed) == spec.num_children and all(isinstance(key, str | int) for key in listed):
        return list(listed)
    definition = pytree.SUPPORTED_NODES[spec.type]
    # Made of numbers in place of tensors, and asked.
    whole = definition.unflatten_fn(list(range(spec.num_children)), spec.context)
    if definition.flatten_with_keys_fn is None:
        return list(range(spec.num_children))
    pairs, _ = definition.flatten_with_keys_fn(whole)
    return [_plain_key(key) for key, _ in pairs]


def _plain_key(key: Any) -> Any:
    if isinstance(key, pytree.GetAttrKey):
        return key.name
    return key.key if isinstance(key, pytree.MappingKey) else key.idx


def _parameter_names(
    program: torch.export.ExportedProgram, positional: int, named: list[str]
) -> tuple[str, ...]:
    """As ``forward`` calls them, where the program knows."""
    whole = program.module_call_graph[0].signature
    known = whole.forward_arg_names if whole is not None else None
    if known and len(known) == positional + len(named):
        return tuple(known)
    return (*(f"arg_{index}" for index in range(positional)), *named)
