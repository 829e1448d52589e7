"""Refine a partitioning on end-to-end time, which no sum of parts tells exactly.

A trial makes one move from the best partitioning so far: it puts in one other candidate and fills
what that leaves uncovered with as few candidates as possible. Optuna proposes which move, remembers
in its storage what was tried, and so can go on where an earlier study stopped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import optuna

from collage.backends.contract.errors import SearchError
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning, make_partitioning, validate
from collage.search.strategies.cover import cheapest_cover
from collage.search.strategies.shared_study import SharedStudy, storage_errors

MOVES = ("merge", "split", "switch", "shift")
"""Join whole partitions into one; cut one; give one to another backend; move a border."""


@dataclass(frozen=True)
class RefineProgress:
    """One finished trial.

    Attributes
    ----------
    trial : int
        Its number in the study, counting from 0.
    move : str
        One of ``MOVES``, or ``start``.
    seconds : float
        End-to-end time; ``inf`` if it could not be run.
    best_sec : float
        The best so far.

    Examples
    --------
    >>> RefineProgress(trial=3, move="merge", seconds=0.9, best_sec=0.9).move in MOVES
    True
    """

    trial: int
    move: str
    seconds: float
    best_sec: float


def refine(
    graph: DataflowGraph,
    start: Partitioning,
    candidates: Sequence[Candidate],
    evaluate: Callable[[Partitioning], float],
    trials: int,
    storage: str | None = None,
    study_name: str = "collage",
    seed: int = 0,
    progress: Callable[[RefineProgress], None] | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> Partitioning:
    """A partitioning at least as good as another end to end, found by measuring whole programs.

    Parameters
    ----------
    graph : DataflowGraph
        What is covered.
    start : Partitioning
        Where to begin; measured first.
    candidates : sequence of Candidate
        What moves may put in.
    evaluate : callable
        End-to-end seconds per call of a partitioning; ``inf`` if it cannot be run. Called once per
        distinct partitioning, and twice more at the end to confirm the winner against the start.
    trials : int
        New partitionings to measure in this call; fewer if there are no other neighbours.
    storage : str, optional
        Where Optuna keeps the study: a URL such as ``sqlite:///refine.db``, or the path of a
        journal file; in memory if left out. An existing study of that name is continued. Several
        processes may be at it at once: what one has measured or is measuring, no other does.
    study_name : str
        The study's name in the storage.
    seed : int
        Of the sampler.
    progress : callable, optional
        Given each finished trial.
    go_on : callable, optional
        Asked before each trial; after a no there are no more.

    Returns
    -------
    Partitioning
        With its end-to-end seconds; ``start`` unless a better one was confirmed.

    Raises
    ------
    SearchError
        When the study in the storage is of another graph.
    LogError
        When the storage cannot be used.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> graph = DataflowGraph.from_uses([[], [0]])
    >>> table = {Candidate(0b01, tvm): 2.0, Candidate(0b10, tvm): 2.0, Candidate(0b11, onednn): 3.0}
    >>> apart = make_partitioning(graph, list(table)[:2])
    >>> def whole_program(partitioning):
    ...     return sum(table[candidate] for candidate in partitioning.candidates)
    >>> better = refine(graph, apart, list(table), whole_program, trials=4)
    >>> better.seconds, [candidate.backend for candidate in better.candidates]
    (3.0, ['onednn'])
    """
    validate(graph, start)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with storage_errors(storage):
            study = SharedStudy(storage, study_name, graph, seed)
            run = _Refinement(graph, start, candidates, evaluate, study, progress)
            run.begin()
            for _ in range(trials):
                if not (go_on() and run.step()):
                    break
        return run.confirmed()
    finally:
        optuna.logging.set_verbosity(verbosity)


class _Refinement:
    """The state of one call: the best so far, and what was measured before."""

    def __init__(
        self,
        graph: DataflowGraph,
        start: Partitioning,
        candidates: Sequence[Candidate],
        evaluate: Callable[[Partitioning], float],
        study: SharedStudy,
        progress: Callable[[RefineProgress], None] | None,
    ) -> None:
        self.graph = graph
        self.start = start
        self.pool = [*start.candidates, *candidates]
        self.evaluate = evaluate
        self.study = study
        self.progress = progress
        self.by_key = {_candidate_key(candidate): candidate for candidate in reversed(self.pool)}
        self.measured: dict[str, float] = {}
        self.best = start
        self.best_sec = math.inf

    def begin(self) -> None:
        """Take over a study's finished trials, and measure the start if nobody else does."""
        self._catch_up()
        if _signature(self.start) not in self.measured:
            trial = self.study.ask()
            if self.study.claim(trial, _signature(self.start)):
                self._measure(trial, self.start, "start")
            else:
                self.study.give_up(trial)

    def _catch_up(self) -> None:
        for text, seconds in self.study.finished().items():
            if text in self.measured:
                continue
            self.measured[text] = seconds
            # Another machine may have found candidates that this one has not.
            found = [self.by_key.get(key) for key in json.loads(text)]
            known = [candidate for candidate in found if candidate is not None]
            if seconds < self.best_sec and len(known) == len(found):
                best = make_partitioning(self.graph, known)
                self.best, self.best_sec = replace(best, origin="refined"), seconds

    def step(self) -> bool:
        """Make and measure one move; False when every neighbour has been measured."""
        trial = self.study.ask()
        kind = trial.suggest_categorical("move", MOVES)
        where = trial.suggest_float("where", 0.0, 1.0)
        self._catch_up()
        taken = self.study.under_way()
        tried = self._moves()
        # The proposed kind first, from the proposed place on; then whatever else is left.
        kinds = [kind, *(other for other in MOVES if other != kind)]
        for name in kinds:
            moves = tried[name]
            offset = min(int(where * len(moves)), max(len(moves) - 1, 0))
            for candidate in moves[offset:] + moves[:offset]:
                neighbour = self._apply(candidate)
                if neighbour is None:
                    continue
                text = _signature(neighbour)
                if text in self.measured or text in taken:
                    continue
                if self.study.claim(trial, text):
                    self._measure(trial, neighbour, name)
                    return True
        self.study.give_up(trial)
        return False

    def confirmed(self) -> Partitioning:
        """The best, if it still beats the start when both are measured once more."""
        start = _signature(self.start)
        if _signature(self.best) == start:
            # Another process may still be at it.
            known_sec = self.measured.get(start)
            seconds = self.evaluate(self.start) if known_sec is None else known_sec
            return replace(self.start, seconds=seconds)
        start_sec = self.evaluate(self.start)
        best_sec = self.evaluate(self.best)
        if best_sec < start_sec:
            return replace(self.best, seconds=best_sec)
        return replace(self.start, seconds=start_sec)

    def _measure(self, trial: optuna.Trial, partitioning: Partitioning, move: str) -> None:
        seconds = self.evaluate(partitioning)
        if math.isnan(seconds) or seconds < 0:
            raise SearchError(f"an end-to-end time is {seconds}", value=seconds)
        self.measured[_signature(partitioning)] = seconds
        self.study.tell(trial, seconds, move)
        if seconds < self.best_sec:
            self.best, self.best_sec = replace(partitioning, seconds=seconds), seconds
        if self.progress is not None:
            self.progress(RefineProgress(trial.number, move, seconds, self.best_sec))

    def _moves(self) -> dict[str, list[Candidate]]:
        """Candidates that are not in the best partitioning, by what putting them in would do."""
        present = {_candidate_key(candidate) for candidate in self.best.candidates}
        moves: dict[str, list[Candidate]] = {kind: [] for kind in MOVES}
        for candidate in self.pool:
            if _candidate_key(candidate) in present:
                continue
            touched = [c for c in self.best.candidates if c.nodes & candidate.nodes]
            union = sum(c.nodes for c in touched)
            if len(touched) == 1:
                same = touched[0].nodes == candidate.nodes
                moves["switch" if same else "split"].append(candidate)
            else:
                moves["merge" if union == candidate.nodes else "shift"].append(candidate)
        return moves

    def _apply(self, candidate: Candidate) -> Partitioning | None:
        """The best partitioning with a candidate put in, or None where that cannot be."""
        kept = [c for c in self.best.candidates if not c.nodes & candidate.nodes]
        fixed = {c.nodes: c for c in [*kept, candidate]}
        open_nodes = self.graph.all_nodes & ~sum(fixed)
        fill: dict[int, Candidate] = {}
        for other in self.pool:
            if other.nodes & ~open_nodes == 0:
                # The candidate's own backend first: fewer borders between backends.
                present = fill.get(other.nodes)
                if present is None or (
                    present.backend != candidate.backend and other.backend == candidate.backend
                ):
                    fill[other.nodes] = other
        costs = {nodes: 0.0 if c.inline else 1.0 for nodes, c in fill.items()}
        cover = cheapest_cover(self.graph, costs | dict.fromkeys(fixed, 0.0))
        if cover is None:
            return None
        chosen = [fixed.get(nodes) or fill[nodes] for nodes in cover.blocks]
        return make_partitioning(self.graph, chosen, None, "refined")


def _signature(partitioning: Partitioning) -> str:
    """A partitioning as one line of JSON; equal ones give equal text."""
    return json.dumps(sorted(_candidate_key(c) for c in partitioning.candidates))


def _candidate_key(candidate: Candidate) -> str:
    composites = ",".join(f"{c.name}:{c.nodes:x}" for c in candidate.composites)
    where = "inline" if candidate.inline else candidate.target.key()
    return f"{candidate.nodes:x} {where} {composites}"
