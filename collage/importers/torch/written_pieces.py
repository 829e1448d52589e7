"""Tensors that are cut into all of their pieces and written into: each piece is cut out alone.

PyTorch writes a program that writes as one that does not by making views anew after each write. A
view that is one of many (``for step in x.unbind(1): step += ...``) brings all the others with it,
so that a loop over a hundred steps grew with the square of their number.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from collage.importers.torch.state import views_through, written_by

aten = torch.ops.aten

_CUTS = frozenset(
    [
        *(aten.unbind.int, aten.split.Tensor, aten.split_with_sizes.default),
        *(aten.chunk.default, aten.tensor_split.sections, aten.tensor_split.indices),
    ]
)


def with_pieces_alone(program: ExportedProgram) -> ExportedProgram:
    """A program that cuts out the pieces one by one of what it writes into.

    Parameters
    ----------
    program : ExportedProgram
        Not changed; itself, where it cuts nothing that it writes into.

    Returns
    -------
    ExportedProgram
        With the same views of the same tensors.

    Examples
    --------
    >>> class Sums(torch.nn.Module):
    ...     def forward(self, x):
    ...         x = x.clone()
    ...         first, second = x.unbind(0)
    ...         second += first
    ...         return x
    >>> with torch.no_grad():
    ...     program = torch.export.export(Sums(), (torch.ones(2, 3),))
    >>> targets = [node.target for node in with_pieces_alone(program).graph.nodes]
    >>> aten.unbind.int in targets, targets.count(aten.select.int)
    (False, 2)
    """
    names = [node.name for node in _cut_and_written(program.graph)]
    if not names:
        return program
    root = copy.deepcopy(program.graph_module)
    for node in [node for node in root.graph.nodes if node.name in names]:
        _cut_out(root.graph, node)
    return ExportedProgram(
        *(root, root.graph, program.graph_signature, program.state_dict),
        *(dict(program.range_constraints), list(program.module_call_graph)),
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _cut_and_written(graph: fx.Graph) -> list[fx.Node]:
    cuts = [node for node in graph.nodes if node.target in _CUTS and _extents(node)]
    if not cuts:
        return []
    written = [tensor for node in graph.nodes for tensor in written_by(node)]
    through = {one for tensor in dict.fromkeys(written) for one in views_through(tensor)}
    return [node for node in cuts if not through.isdisjoint(views_through(node))]


def _extents(node: fx.Node) -> Sequence[int]:
    """Of the pieces along the axis that is cut; none where they are not all known."""
    shapes = [piece.shape for piece in node.meta.get("val", ())]
    axis = _axis(node)
    if node.target is aten.unbind.int:
        return [1] * len(shapes)
    extents = [shape[axis] for shape in shapes]
    return extents if all(isinstance(extent, int) for extent in extents) else []


def _axis(node: fx.Node) -> int:
    names = [argument.name for argument in node.target._schema.arguments]
    given: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return int(given.get("dim", 0))


def _cut_out(graph: fx.Graph, node: fx.Node) -> None:
    """In place of each piece that is used, a view of it alone."""
    extents, axis, source = _extents(node), _axis(node), node.args[0]
    ends = list(accumulate(extents))
    for piece in list(node.users):
        if piece.target is not operator.getitem:
            continue
        place = piece.args[1] % len(extents)
        with graph.inserting_before(piece):
            if node.target is aten.unbind.int:
                alone = graph.call_function(aten.select.int, (source, axis, place))
            else:
                first = ends[place] - extents[place]
                alone = graph.call_function(aten.slice.Tensor, (source, axis, first, ends[place]))
        alone.meta = dict(piece.meta)
        piece.replace_all_uses_with(alone)
        graph.erase_node(piece)
        # By which the program's signature knows it, where it is a result.
        alone.name = piece.name
    if not node.users:
        graph.erase_node(node)
