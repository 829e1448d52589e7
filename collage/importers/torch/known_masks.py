"""Reads and writes through masks that do not depend on inputs: their places are known.

``y[:, mask] = values`` takes as many values as the mask holds places, and ``x[mask]`` has as many
rows. Where the mask is a buffer, or follows from shapes alone, these are written down.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
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
from torch.utils import _pytree as pytree

from collage.importers.torch.state import views_through, written_by

aten = torch.ops.aten

_WRITES = (aten.index_put.default, aten.index_put_.default)
_READ = aten.index.Tensor
_ALONE = aten.detach_.default
"""Writes nothing: PyTorch has it behind each tensor that a module's code makes of numbers."""

_KEPT = (InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.PARAMETER)


def with_known_masks(program: ExportedProgram) -> ExportedProgram:
    """A program that reads and writes at known places where it did through known masks.

    Parameters
    ----------
    program : ExportedProgram
        Not changed; itself, where it does not.

    Returns
    -------
    ExportedProgram
        With the places as constants of its own. Traced anew where it reads at some: what follows
        has as many rows as there are.

    Examples
    --------
    >>> class Fill(torch.nn.Module):
    ...     def forward(self, x):
    ...         x = x.clone()
    ...         x[:, torch.arange(4) > 1] = x[:, :2]
    ...         return x
    >>> with torch.no_grad():
    ...     program = torch.export.export(Fill(), (torch.ones(2, 4),))
    >>> len(with_known_masks(program).constants) - len(program.constants)
    1
    """
    read = _at_known_places(program, (_READ,))
    # What is written may be what was read, of which it is known now how much that is.
    return _at_known_places(program if read is program else read.run_decompositions({}), _WRITES)


def _at_known_places(program: ExportedProgram, targets: tuple[Any, ...]) -> ExportedProgram:
    """The program with places in these operators for masks that are known; itself for none."""
    values = _Known(program)
    found = {
        node.name: masks
        for node in program.graph.nodes
        if node.target in targets and (masks := _known_masks(node, values))
    }
    if not found:
        return program
    root = copy.deepcopy(program.graph_module)
    mode = detect_fake_mode([node.meta.get("val") for node in root.graph.nodes])
    first = next(iter(root.graph.nodes))
    new, constants = [], dict(program.constants)
    for node in [node for node in root.graph.nodes if node.name in found]:
        indices: list[Any] = []
        for place, index in enumerate(node.args[1]):
            mask = found[node.name].get(place)
            if mask is None:
                indices.append(index)
                continue
            for axis, tensor in enumerate(mask.nonzero(as_tuple=True)):
                name = f"places_{node.name}_{place}_{axis}"
                with root.graph.inserting_before(first):
                    made = root.graph.placeholder(name)
                made.meta["val"] = mode.from_tensor(tensor, static_shapes=True)
                new.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(made.name), name))
                constants[name] = tensor
                indices.append(made)
        node.args = (node.args[0], indices, *node.args[2:])
    specs = program.graph_signature
    return ExportedProgram(
        *(root, root.graph),
        ExportGraphSignature([*new, *specs.input_specs], list(specs.output_specs)),
        *(program.state_dict, dict(program.range_constraints), list(program.module_call_graph)),
        constants=constants,
        verifiers=program.verifiers,
    )


def _known_masks(node: fx.Node, values: _Known) -> dict[int, torch.Tensor]:
    """The masks that are indices, by where they stand, if all are known and so is how much is
    written."""
    if node.target in _WRITES:
        written = node.args[2].meta["val"]
        if not all(isinstance(extent, int) for extent in written.shape) or written.numel() == 1:
            return {}
    masks = {
        place: index
        for place, index in enumerate(node.args[1])
        if index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8)
    }
    known = {place: values.of(index) for place, index in masks.items()}
    return (
        {} if None in known.values() else {place: v for place, v in known.items() if v is not None}
    )


class _Known:
    """What tensors of a program hold that depend on no input."""

    def __init__(self, program: ExportedProgram) -> None:
        tensors = {**program.state_dict, **program.constants}
        specs = program.graph_signature.input_specs
        self._kept = {
            spec.arg.name: tensors[spec.target]
            for spec in specs
            if spec.kind in _KEPT and isinstance(tensors.get(spec.target), torch.Tensor)
        }
        self._graph = program.graph
        self._found: dict[fx.Node, torch.Tensor | None] = {}
        self._written: frozenset[fx.Node] | None = None

    def of(self, node: fx.Node) -> torch.Tensor | None:
        """A node's value; None where that is not known."""
        if node not in self._found:
            self._found[node] = self._value(node)
        return self._found[node]

    def _value(self, node: fx.Node) -> torch.Tensor | None:
        if self._written is None:
            self._written = frozenset(self._all_written())
        if not self._written.isdisjoint(views_through(node)):
            return None
        if node.op == "placeholder":
            return self._kept.get(node.name)
        target = node.target
        if target is _ALONE:
            return self.of(node.args[0])
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
            return None
        if torch.Tag.nondeterministic_seeded in target.tags:
            return None
        operands = {one: self.of(one) for one in node.all_input_nodes}
        if any(value is None for value in operands.values()):
            return None
        args, kwargs = pytree.tree_map(
            lambda one: operands[one] if isinstance(one, fx.Node) else one,
            (node.args, dict(node.kwargs)),
        )
        with torch.no_grad():
            found = target(*args, **kwargs)
        return found if isinstance(found, torch.Tensor) else None

    def _all_written(self) -> Iterator[fx.Node]:
        """What is written into, and what that is a view of."""
        for node in self._graph.nodes:
            for tensor in written_by(node) if node.target is not _ALONE else ():
                yield from views_through(tensor)
