"""Partitionings made without a search: every single backend, and greedy."""

from __future__ import annotations

from contextlib import suppress

from collage.backends.contract import BackendTarget, TargetSet
from collage.backends.contract.errors import RestrictionError, TargetError
from collage.end_to_end.evaluation import Contender
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.restrictions import UNRESTRICTED, Restrictions
from collage.search.strategies import greedy, single_backend

_SINGLE = "single:"


def baselines(
    graph: DataflowGraph, targets: TargetSet, restrictions: Restrictions = UNRESTRICTED
) -> list[Contender]:
    """What a search's answer has to beat: each backend alone, and greedy where that differs.

    Parameters
    ----------
    graph : DataflowGraph
        Of the normalized module.
    targets : TargetSet
        What they may use.
    restrictions : Restrictions, optional
        What they may not use. A backend alone has help where it may not, or cannot, have a binding
        that is closed to TVM too; one that cannot keep to the restrictions is left out.

    Returns
    -------
    list of Contender
        Without those that the restrictions rule out.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> mod = graph([(8,)], lambda emit, x: op.exp(x))
    >>> targets = resolve_targets(["llvm", "onednn", "openblas"])
    >>> [one.name for one in baselines(DataflowGraph.from_function(mod["main"]), targets)]
    ['single:tvm', 'single:onednn', 'single:openblas', 'greedy']
    """
    names = [f"{_SINGLE}{target.name}" for target in targets]
    names += ["greedy"] if len(targets.external) > 1 else []
    found = []
    for name in names:
        with suppress(RestrictionError):
            found.append(Contender(name, without_search(graph, targets, name, restrictions)))
    return found


def is_single(contender: Contender) -> bool:
    """Whether a contender is one backend alone (TVM having what that does not take).

    Examples
    --------
    >>> is_single(Contender("single:onednn", Partitioning(())))
    True
    """
    return contender.name.startswith(_SINGLE)


def without_search(
    graph: DataflowGraph,
    targets: TargetSet,
    strategy: str,
    restrictions: Restrictions = UNRESTRICTED,
) -> Partitioning:
    """What a strategy other than ``search`` gives.

    Parameters
    ----------
    graph, targets
        As :func:`baselines` takes them.
    strategy : str
        ``greedy`` or ``single:<backend>``.
    restrictions : Restrictions, optional
        What it may not use.

    Returns
    -------
    Partitioning
        It covers the graph; its cost is not known.

    Raises
    ------
    RestrictionError
        When what it chooses is not allowed.
    TargetError
        When the strategy names a backend that is none of the targets.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> mod = graph([(8,)], lambda emit, x: op.exp(x))
    >>> targets = resolve_targets(["llvm", "onednn"])
    >>> made = without_search(DataflowGraph.from_function(mod["main"]), targets, "greedy")
    >>> [candidate.backend for candidate in made.candidates]
    ['onednn']
    """
    if strategy == "greedy":
        return greedy(graph, targets, restrictions=restrictions)
    return single_backend(
        graph,
        targets.named(strategy.removeprefix(_SINGLE)),
        targets.native,
        restrictions=restrictions,
        lenders=targets.external,
    )


def taking_part(strategy: str, targets: TargetSet) -> list[BackendTarget]:
    """The targets that a strategy may use, besides TVM itself.

    Parameters
    ----------
    strategy : str
        A valid one.
    targets : TargetSet
        What the user gave.

    Returns
    -------
    list of BackendTarget
        In the order of the targets; all of them for ``search`` and ``greedy``.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> targets = resolve_targets(["llvm", "onednn", "openblas"])
    >>> [target.backend for target in taking_part("single:onednn", targets)]
    ['onednn']
    """
    name = strategy.removeprefix(_SINGLE)
    return [target for target in targets if name in ("search", "greedy", target.name)]


def check_strategy(strategy: str, targets: TargetSet) -> None:
    """Refuse a strategy that is none.

    Parameters
    ----------
    strategy : str
        What the user gave.
    targets : TargetSet
        With which it has to be possible.

    Raises
    ------
    TargetError
        When there is none of that name with these targets; lists those there are.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> check_strategy("annealing", resolve_targets(["llvm"]))
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.TargetError: unknown strategy 'annealing'; with ...
    """
    valid = ["search", "greedy", *(f"{_SINGLE}{name}" for name in targets.names)]
    kind, _, name = strategy.partition(_SINGLE)
    if strategy not in valid and not kind and name:
        raise TargetError(
            f"'{name}' cannot run alone: the targets are {', '.join(targets.names)}; give it among "
            "them, too",
            value=strategy,
        )
    if strategy not in valid:
        raise TargetError(
            f"unknown strategy '{strategy}'; with these targets: {', '.join(valid)}",
            value=strategy,
        )
