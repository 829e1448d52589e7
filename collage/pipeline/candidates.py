"""The first of the middle stages: what a cover may be made of."""

from __future__ import annotations

from collage.backends.contract import TargetSet, Tunable
from collage.cost.deadline import NEVER, Deadline
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.layouts import LayoutGraph
from collage.search.restrictions import UNRESTRICTED, Restrictions
from collage.search.rules import (
    Found,
    LayoutsRule,
    PartitionRule,
    RestrictedRule,
    UndominatedRule,
    default_rules,
)


def find_candidates(
    graph: DataflowGraph,
    targets: TargetSet,
    progress: ProgressCallback = ignore,
    *,
    restrictions: Restrictions = UNRESTRICTED,
    until: Deadline = NEVER,
) -> Found:
    """Every candidate worth a measurement, and why not the others.

    Parameters
    ----------
    graph, targets
        As :func:`baselines` takes them.
    progress : callable
        Told how many they are.
    restrictions : Restrictions, optional
        What may not be used: it is among the rejections.
    until : Deadline, optional
        When to give up.

    Returns
    -------
    Found
        Candidates without those that a larger one of the same target makes needless.

    Raises
    ------
    OutOfTimeError
        When not all were found by then.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: op.exp(x))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> found = find_candidates(dataflow, resolve_targets(["llvm", "onednn"]))
    >>> sorted(candidate.backend for candidate in found.candidates)
    ['onednn', 'tvm']
    """
    progress(ProgressEvent("enumerate", 0, 1, "looking for candidates"))
    allowed = graph.on_plain(restrictions) if isinstance(graph, LayoutGraph) else restrictions
    rule: PartitionRule = UndominatedRule(RestrictedRule(default_rules(targets), allowed))
    with graph.plain.checked(until.check):
        if isinstance(graph, LayoutGraph):
            found = LayoutsRule(rule, targets).find(graph)
        else:
            found = rule.find(graph)
    progress(ProgressEvent("enumerate", 1, 1, f"{len(found.candidates)} candidates"))
    return found


def has_to_tune(candidate: Candidate) -> bool:
    """Whether a candidate would be compiled in many ways first, to choose one.

    Parameters
    ----------
    candidate : Candidate
        That nobody measured.

    Returns
    -------
    bool
        True of libraries that tune: CUTLASS takes half a minute for the kernels of a network.
    """
    return isinstance(candidate.target.implementation, Tunable)
