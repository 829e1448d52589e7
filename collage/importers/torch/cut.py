"""Results of which the data say how many rows there are: these come first, with their number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import fx
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from collage.importers.torch.choosing import choosers_of, label_of
from collage.importers.torch.meant import Pieces, Rows, UnknownError, joined
from collage.importers.torch.places import places_of

if TYPE_CHECKING:
    from collage.importers.torch.absorbed import Following

aten = torch.ops.aten


@dataclass(frozen=True)
class CutRows:
    """A number of rows that is given behind a program's results.

    Attributes
    ----------
    label : str
        What chose them.
    outputs : tuple of (int, int)
        Results that have so many rows, and along which axis; empty where that is yet to be found.
    """

    label: str
    outputs: tuple[tuple[int, int], ...] = ()


def give_rows(program: torch.export.ExportedProgram, following: Following) -> list[CutRows]:
    """Change a program as was found, and let it give how many rows its results have, behind them.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Changed in place.
    following : Following
        Knows which results have rows of which some are none.

    Returns
    -------
    list of CutRows
        In the order of the numbers.

    Raises
    ------
    UnknownError
        When a program keeps such rows from call to call.
    """
    graph, specs = program.graph, program.graph_signature.output_specs
    output = graph.output_node()
    groups: dict[Pieces, list[tuple[int, int]]] = {}
    for place, rows in following.results.items():
        if specs[place].kind is not OutputKind.USER_OUTPUT:
            raise UnknownError
        groups.setdefault(rows.valid, []).append((place, rows.axis))
    for change in following.changes:
        change()
    results = list(output.args[0])
    with graph.inserting_before(output):
        for valid, outputs in groups.items():
            results.append(_first_ones(following, valid, outputs, results))
    output.args = (tuple(results),)
    for spec, result in zip(specs, results, strict=False):
        if isinstance(spec.arg, TensorArgument):
            spec.arg = TensorArgument(result.name)
    for count in results[len(specs) :]:
        specs.append(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(count.name), None))
    label = label_of(choosers_of(program)[-1])
    return [CutRows(label, tuple(outputs)) for outputs in groups.values()]


def _first_ones(
    following: Following, valid: Pieces, outputs: list[tuple[int, int]], results: list[fx.Node]
) -> fx.Node:
    """Let the rows of some results that are come first; gives how many."""
    rows = Rows(0, valid)
    first = valid[0][0]
    if len(valid) == 1 and first in following.counts:
        return following.counts[first]
    graph, length = following.graph, sum(n for _, n in valid)
    places, count = places_of(graph, joined(graph, rows), length)
    for place, axis in outputs:
        x = results[place]
        taken = graph.call_function(aten.index_select.default, (x, axis, places))
        taken.meta["val"] = x.meta["val"]
        results[place] = taken
    return count
