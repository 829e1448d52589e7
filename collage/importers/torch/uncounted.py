"""Programs that need not know how many rows the data choose, though they were traced so.

Rows of a group go through a layer of their own and are joined again; places where a mask holds are
filled with one value. Both can be written for all rows.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from collage.importers.torch.nodes import is_about_numbers
from collage.importers.torch.pieces import compute_whole, is_cut_by_data

aten = torch.ops.aten


def with_all_rows(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A program that computes with all rows where it did with those that data choose.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Is not changed; is what is returned where it does neither of the above.

    Returns
    -------
    torch.export.ExportedProgram
        What else is done with chosen rows is as it was.
    """
    if not any(is_cut_by_data(n) or _mask_of(n) is not None for n in program.graph.nodes):
        return program
    changed = program.run_decompositions({})
    graph = changed.graph
    for node in list(graph.nodes):
        if is_cut_by_data(node):
            compute_whole(graph, node)
        elif (mask := _mask_of(node)) is not None:
            _fill(graph, node, mask)
    _leave_out_numbers(graph)
    changed.graph_module.recompile()
    return changed


def _mask_of(node: fx.Node) -> fx.Node | None:
    """The mask whose places are filled with one value, ``x[torch.where(mask)] = value``."""
    if node.target not in (aten.index_put.default, aten.index_put_.default):
        return None
    places, value = node.args[1], node.args[2]
    chosen = places[0].args[0] if isinstance(places[0], fx.Node) and places[0].args else None
    if not isinstance(chosen, fx.Node) or chosen.target not in _CHOOSING:
        return None
    mask = chosen.args[0]
    known = mask.meta["val"]
    wanted = [(chosen, column) for column in range(known.dim())]
    columns = [
        (one.args[0], one.args[1])
        for one in places
        if isinstance(one, fx.Node) and one.target is operator.getitem
    ]
    whole = columns == wanted and known.shape == node.args[0].meta["val"].shape[: len(wanted)]
    adds = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
    one = not value.meta["val"].dim() and known.dtype == torch.bool
    return mask if whole and one and not adds and len(columns) == len(places) else None


_CHOOSING = (aten.where.default, aten.nonzero_numpy.default)


def _fill(graph: fx.Graph, node: fx.Node, mask: fx.Node) -> None:
    with graph.inserting_before(node):
        wide = mask
        for axis in range(mask.meta["val"].dim(), node.meta["val"].dim()):
            value = wide.meta["val"].unsqueeze(axis)
            wide = graph.call_function(aten.unsqueeze.default, (wide, axis))
            wide.meta["val"] = value
        found = graph.call_function(aten.where.self, (wide, node.args[2], node.args[0]))
        found.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(found)
    graph.erase_node(node)


def _leave_out_numbers(graph: fx.Graph) -> None:
    """Without what nothing computes with any more: numbers of rows, and what is known of them."""
    for node in reversed(list(graph.nodes)):
        chooses = node.target in (*_CHOOSING, operator.getitem) or is_cut_by_data(node)
        if node.op == "call_function" and not node.users and (chooses or is_about_numbers(node)):
            graph.erase_node(node)
