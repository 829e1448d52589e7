"""Partitionings made without a search: every single backend, and greedy."""

from __future__ import annotations

from collage.backends.contract import BackendTarget, TargetSet
from collage.backends.contract.errors import TargetError
from collage.end_to_end._base import Contender
from collage.search.dataflow import DataflowGraph
from collage.search.greedy import greedy, single_backend
from collage.search.partitioning import Partitioning

_SINGLE = "single:"


def baselines(graph: DataflowGraph, targets: TargetSet) -> list[Contender]:
    """What a search's answer has to beat: each backend alone, and greedy where that differs.

    Parameters
    ----------
    graph : DataflowGraph
        Of the normalized module.
    targets : TargetSet
        What they may use.

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
    found = [
        Contender(f"{_SINGLE}{target.name}", single_backend(graph, target, targets.native))
        for target in targets
    ]
    if len(targets.external) > 1:
        found.append(Contender("greedy", greedy(graph, targets)))
    return found


def is_single(contender: Contender) -> bool:
    """Whether a contender is one backend alone (TVM having what that does not take).

    Parameters
    ----------
    contender : Contender
        As :func:`baselines` names them.

    Examples
    --------
    >>> is_single(Contender("single:onednn", Partitioning(())))
    True
    """
    return contender.name.startswith(_SINGLE)


def without_search(graph: DataflowGraph, targets: TargetSet, strategy: str) -> Partitioning:
    """What a strategy other than ``search`` gives.

    Parameters
    ----------
    graph : DataflowGraph
        Of the normalized module.
    targets : TargetSet
        What it may use.
    strategy : str
        ``greedy`` or ``single:<backend>``.

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
        return greedy(graph, targets)
    return single_backend(graph, targets.named(strategy.removeprefix(_SINGLE)), targets.native)


def taking_part(strategy: str, targets: TargetSet) -> list[BackendTarget]:
    """The targets that a strategy may use, besides TVM itself.

    Parameters
    ----------
    strategy : str
        A valid one.
    targets : TargetSet
        What the user gave.

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
    if strategy not in valid:
        raise TargetError(
            f"unknown strategy '{strategy}'; with these targets: {', '.join(valid)}",
            value=strategy,
        )
