"""The stage that makes the layouts of tensors a decision of the search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collage.backends.contract.errors import SearchError, UserError
from collage.backends.devices import DeviceKind
from collage.end_to_end import FURTHER, Contender
from collage.passes import with_seams
from collage.pipeline.costing.inside_costs import SeenCosts
from collage.pipeline.imported import Imported
from collage.report.data import EQUAL
from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts
from collage.search.dataflow import DataflowGraph
from collage.search.layouts import LayoutGraph
from collage.search.partitioning import Partitioning
from collage.search.rules import LAYOUTS as CONVERTING
from collage.search.strategies import search

LAYOUTS = ("plain", "channels_last")
"""That pictures may have between partitions."""

_NAMED = 5
"""Tensors that a remark names."""


def chooses_layouts(
    layouts: Sequence[str] | str | None, device: DeviceKind, max_error: float | None = None
) -> bool:
    """Whether the search is to choose among layouts.

    Parameters
    ----------
    layouts : sequence of str or str or None
        What a user allows, in a text with commas between; None for what the device does without
        a choice.
    device : DeviceKind
        What is searched for.
    max_error : float, optional
        Not None where fewer digits are, which layouts are not chosen along with.

    Returns
    -------
    bool
        False where there is one only.

    Raises
    ------
    UserError
        For a layout that there is not, or that the device has only as a choice.

    Examples
    --------
    >>> from collage.backends.devices import CPU
    >>> chooses_layouts(None, CPU), chooses_layouts(["plain", "channels_last"], CPU)
    (False, True)
    """
    own = LAYOUTS[device.channels_last]
    wanted = set(layouts.split(",") if isinstance(layouts, str) else layouts or [own])
    if unknown := sorted(wanted - set(LAYOUTS)):
        raise UserError(
            f"unknown layout '{unknown[0]}'; there are: {', '.join(LAYOUTS)}", value=unknown[0]
        )
    if own not in wanted:
        raise UserError(
            f"without {own}, layouts cannot be chosen for {device.name}: give {','.join(LAYOUTS)}",
            value=layouts,
        )
    if len(wanted) > 1 and max_error is not None:
        raise UserError("layouts cannot be chosen along with max_error: leave one out")
    return len(wanted) > 1


def with_layouts(imported: Imported, device: DeviceKind) -> Imported:
    """The model with a choice of layouts where partitions may meet.

    Parameters
    ----------
    imported : Imported
        Ready to be searched over.
    device : DeviceKind
        Whose layout its pictures have.

    Returns
    -------
    Imported
        The same where there is nothing to choose.
    """
    mod, graph = with_seams(imported.mod, imported.graph, last=device.channels_last)
    return imported if graph is imported.graph else replace(imported, mod=mod, graph=graph)


@dataclass(frozen=True)
class LayoutsFound:
    """What a search made of layouts, beside what the same costs make of one layout for all.

    Attributes
    ----------
    remarks : tuple of str
        For the report; none where there was nothing to choose.
    others : tuple of Contender
        The best covers with one layout for all, as far as they are known and differ.
    """

    remarks: tuple[str, ...] = ()
    others: tuple[Contender, ...] = ()


def compare_layouts(
    graph: DataflowGraph,
    candidates: Sequence[Candidate],
    costs: CandidateCosts,
    answer: Partitioning,
    own: str = LAYOUTS[0],
) -> LayoutsFound:
    """Tell which layouts an answer has, and what it would take with one for all.

    Parameters
    ----------
    graph : DataflowGraph
        What was searched over.
    candidates : sequence of Candidate
        All that there were; only what was measured takes part.
    costs : CandidateCosts
        That the answer was found by.
    answer : Partitioning
        Of the graph.
    own : str
        The layout of the graph's pictures, one of :data:`LAYOUTS`.

    Returns
    -------
    LayoutsFound
        Empty for a graph without a choice.
    """
    if not isinstance(graph, LayoutGraph):
        return LayoutsFound()
    other = LAYOUTS[1 - LAYOUTS.index(own)]
    turned, count = [], 0
    for seam in graph.seams:
        if any(seam.mask & part.nodes & ~graph.idle(part.nodes) for part in answer.candidates):
            turned.append(f"{seam.tensor}:{graph.op_name(seam.tensor)}")
    for part in answer.candidates:
        count += part.rule == CONVERTING and not part.inline
    sides = {
        own: [c for c in candidates if c.inline or not _turns(graph, c)],
        other: [c for c in candidates if not (c.inline and c.rule == CONVERTING)],
    }
    said, others = [], list[Contender]()
    seen = SeenCosts(costs.known)
    for name, some in sides.items():
        found = _cheapest(graph, some, seen)
        if found is None or found.seconds is None:
            said.append(f"{name} for all was not measured")
            continue
        said.append(f"{name} for all {found.seconds * 1e3:.3f} ms")
        if found.key() not in {answer.key(), *(one.partitioning.key() for one in others)}:
            others.append(Contender(f"{FURTHER}{name}", found))
    shown = ", ".join(turned[:_NAMED]) + (", …" if len(turned) > _NAMED else "")
    takes_sec = math.fsum(seen.known(part) for part in answer.candidates)
    remark = (
        f"layouts: of {len(graph.seams)} tensors that may be {other} between partitions, "
        f"{len(turned)} are{f' ({shown})' if shown else ''}, with {count} conversions; the parts "
        f"of the search's answer take {takes_sec * 1e3:.3f} ms, {', '.join(said)}"
    )
    return LayoutsFound((remark,), tuple(others))


def _turns(graph: LayoutGraph, candidate: Candidate) -> bool:
    """Whether a candidate has another layout at its border, or converts."""
    return bool(candidate.nodes & graph.conversions & ~graph.idle(candidate.nodes))


def _cheapest(
    graph: DataflowGraph, candidates: Sequence[Candidate], costs: SeenCosts
) -> Partitioning | None:
    known = [one for one in candidates if costs.known(one) < math.inf]
    try:
        return search(graph, known, costs, tolerance=EQUAL).partitioning
    except SearchError:
        return None
