"""Tensors that bodies hold, as inputs of the whole program that reach them as operands.

``torch.export`` leaves a tensor that is made inside of a body there, and PyTorch 2.13 then cannot
take the program apart where bodies are nested.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)

from collage.importers.torch.courses.symbols import READS

aten = torch.ops.aten

_PREFIX = "held_"


def hoisted(program: ExportedProgram) -> ExportedProgram:
    """A program no body of which holds a tensor; itself, where none does.

    Parameters
    ----------
    program : ExportedProgram
        Not changed.

    Returns
    -------
    ExportedProgram
        With those tensors as constants of its own.
    """
    bodies = [one for one in program.graph_module.modules() if one is not program.graph_module]
    if not any(_held(one) for one in bodies if isinstance(one, fx.GraphModule)):
        return program
    root = copy.deepcopy(program.graph_module)
    values = [node.meta.get("val") for node in root.graph.find_nodes(op="placeholder")]
    _Hoist(detect_fake_mode(values)).out_of_bodies(root)
    found = program.graph_signature
    specs, constants = list(found.input_specs), dict(program.constants)
    first = next(iter(root.graph.nodes))
    new = []
    for node in _held(root):
        tensor = getattr(root, str(node.target))
        with root.graph.inserting_before(first):
            made = root.graph.placeholder(str(node.target))
        made.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(made)
        root.graph.erase_node(node)
        delattr(root, str(node.target))
        new.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(made.name), made.name))
        constants[made.name] = tensor
    return ExportedProgram(
        *(root, root.graph, ExportGraphSignature([*new, *specs], list(found.output_specs))),
        *(program.state_dict, dict(program.range_constraints), list(program.module_call_graph)),
        constants=constants,
        verifiers=program.verifiers,
    )


def functional(program: ExportedProgram) -> ExportedProgram:
    """A program of its own that writes into nothing, no body of which holds a tensor.

    Parameters
    ----------
    program : ExportedProgram
        Not changed.

    Returns
    -------
    ExportedProgram
        What was written stands among its outputs.
    """
    with warnings.catch_warnings():
        # PyTorch 2.13 warns of itself as it copies a program.
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
        return _read_from_copies(hoisted(program)).run_decompositions({})


def _read_from_copies(program: ExportedProgram) -> ExportedProgram:
    """A program that reads numbers from rows that other such numbers chose out of copies.

    Such a row begins at an unknown place in memory, and PyTorch 2.13 does not trace that a number
    is read there.
    """
    read = [node for node in program.graph.nodes if node.target in READS and _is_chosen(node)]
    if not read:
        return program
    names = {node.name for node in read}
    root = copy.deepcopy(program.graph_module)
    for node in list(root.graph.nodes):
        if node.name in names:
            with root.graph.inserting_before(node):
                own = root.graph.call_function(aten.clone.default, (node.args[0],))
            own.meta["val"] = node.args[0].meta["val"].clone()
            node.args = (own,)
    return ExportedProgram(
        *(root, root.graph, program.graph_signature, program.state_dict),
        *(dict(program.range_constraints), list(program.module_call_graph)),
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _is_chosen(node: fx.Node) -> bool:
    (row,) = node.args
    like = row.meta.get("val") if isinstance(row, fx.Node) else None
    return isinstance(like, torch.Tensor) and isinstance(like.storage_offset(), torch.SymInt)


def _held(module: fx.GraphModule) -> list[fx.Node]:
    """The nodes that read tensors of a graph's own."""
    return [
        node
        for node in module.graph.find_nodes(op="get_attr")
        if isinstance(getattr(module, str(node.target), None), torch.Tensor)
    ]


class _Hoist:
    """Gives tensors of bodies to them as operands."""

    def __init__(self, mode: Any) -> None:
        self._mode = mode
        self._count = 0

    def out_of_bodies(self, module: fx.GraphModule) -> None:
        """Let a graph hold what its bodies do, and theirs."""
        for node in list(module.graph.nodes):
            bodies = _bodies(module, node)
            if not bodies:
                continue
            for body in bodies:
                self.out_of_bodies(body)
            for body in bodies:
                for held in _held(body):
                    self._hoist(module, node, body, held, bodies)
        module.recompile()

    def _hoist(
        self,
        module: fx.GraphModule,
        node: fx.Node,
        body: fx.GraphModule,
        held: fx.Node,
        bodies: Sequence[fx.GraphModule],
    ) -> None:
        """One tensor, as the last operand of all bodies."""
        tensor = getattr(body, str(held.target))
        fake = self._mode.from_tensor(tensor) if self._mode else tensor
        name = f"{_PREFIX}{self._count}"
        self._count += 1
        module.register_buffer(name, tensor, persistent=False)
        with module.graph.inserting_before(node):
            mine = module.graph.get_attr(name)
        mine.meta["val"] = fake
        operands = node.args[-1]
        assert isinstance(operands, list | tuple), "operands come last"
        node.args = (*node.args[:-1], type(operands)([*operands, mine]))
        for one in bodies:
            last = list(one.graph.find_nodes(op="placeholder"))[-1:]
            where = one.graph.inserting_after(last[0]) if last else one.graph.inserting_before()
            with where:
                taken = one.graph.placeholder(name)
            taken.meta["val"] = fake
            if one is body:
                held.replace_all_uses_with(taken)
                one.graph.erase_node(held)
                delattr(one, str(held.target))
            one.recompile()


def _bodies(module: fx.GraphModule, node: fx.Node) -> list[fx.GraphModule]:
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return []
    names = [
        str(one.target) for one in node.args if isinstance(one, fx.Node) and one.op == "get_attr"
    ]
    found = [getattr(module, name) for name in names]
    return [one for one in found if isinstance(one, fx.GraphModule)]
