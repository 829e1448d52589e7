"""Whether independent searches of one model give the same answer, and if not, whether it matters.

Each search begins with an empty log. Their distinct answers are then timed in one contest, all in
the same rounds: answers that tie there are equally good, however their operators are spread.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collage.backends.contract.errors import UserError
from collage.bundle import Bundle, load, random_array
from collage.cost.contest import Outcome, PairedComparison, paired_comparisons
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.pipeline.optimize import optimize
from collage.report import Report
from collage.targets import TargetLike

_ROUNDS = 24
_ROUND_SEC = 0.05
"""For each answer in each round, if a call takes no longer."""


@dataclass(frozen=True)
class SearchAnswer:
    """One search.

    Attributes
    ----------
    answer : int
        Which of the distinct answers it gave, in the order in which they were first found.
    chosen : str
        Whose answer won its own contest: ``search``, ``greedy``, ``single:<backend>``.
    median_sec : float
        Of that answer, in its own contest; of several functions together, as ``wall_sec``.
    wall_sec : float
        What the search took.

    Examples
    --------
    >>> SearchAnswer(0, "search", 1e-3, 60.0).chosen
    'search'
    """

    answer: int
    chosen: str
    median_sec: float
    wall_sec: float


@dataclass(frozen=True)
class Flip:
    """An operator that not all searches gave to the same backend.

    Attributes
    ----------
    node : int
        Its index in the graph.
    op : str
        Its operator.
    backends : mapping of str to int
        How many searches gave it to which.
    outcome : Outcome
        Of the answers with another backend there, end to end: ``TIE`` where all of them tie with
        the best one; ``SLOWER`` where one is; ``UNDECIDED`` where none is known to be, but not
        all are known to tie either.
    function : str
        Whose graph it is, of a model with several functions or buckets of shapes.

    Examples
    --------
    >>> Flip(3, "relax.matmul", {"onednn": 9, "openblas": 1}, Outcome.TIE).is_tie
    True
    """

    node: int
    op: str
    backends: Mapping[str, int]
    outcome: Outcome
    function: str = ""

    @property
    def is_tie(self) -> bool:
        """Whether it is known to make no difference."""
        return self.outcome is Outcome.TIE


@dataclass(frozen=True)
class Stability:
    """What independent searches had in common.

    Attributes
    ----------
    searches : tuple of SearchAnswer
        In their order.
    comparisons : tuple of PairedComparison
        Of the distinct answers, in one contest; the best of them is the chosen one.
    flips : tuple of Flip
        Where answers differ.

    Examples
    --------
    >>> one = SearchAnswer(0, "search", 1e-3, 60.0)
    >>> Stability((one, one), (PairedComparison(Outcome.CHOSEN),), ()).largest_regret
    0.0
    """

    searches: tuple[SearchAnswer, ...]
    comparisons: tuple[PairedComparison, ...]
    flips: tuple[Flip, ...]

    @property
    def largest_regret(self) -> float:
        """How much slower than the best answer the worst one is: 0.02 is two percent."""
        ratios = [c.ratio.estimate for c in self.comparisons if c.ratio is not None]
        return max([0.0, *(ratio - 1.0 for ratio in ratios)])

    @property
    def spread(self) -> float:
        """Of the times that the searches reported: the largest over the smallest, less one."""
        times = [search.median_sec for search in self.searches]
        return max(times) / min(times) - 1.0

    @property
    def flips_outside_ties(self) -> tuple[Flip, ...]:
        """Those that cost something."""
        return tuple(flip for flip in self.flips if flip.outcome is Outcome.SLOWER)

    @property
    def flips_not_decided(self) -> tuple[Flip, ...]:
        """Those of which nobody knows whether they cost something."""
        return tuple(flip for flip in self.flips if flip.outcome is Outcome.UNDECIDED)


def stability(
    model: Any,
    targets: Sequence[TargetLike] | None = None,
    searches: int = 10,
    *,
    progress: ProgressCallback = ignore,
    **options: Any,
) -> Stability:
    """Search a model several times, each time anew, and compare the answers.

    Parameters
    ----------
    model : tvm.IRModule, path, onnx.ModelProto or torch.export.ExportedProgram
        As :func:`collage.optimize` takes it.
    targets : sequence
        Likewise.
    searches : int
        How many; what is compiled in advance, as backends' own libraries, is shared.
    progress : callable
        Told of each search, and of what it says.
    **options
        More of :func:`collage.optimize`'s, but for a log.

    Returns
    -------
    Stability
        The distinct answers, their comparison, and where they differ.

    Raises
    ------
    UserError
        When no search is asked for, or a log is given, and as :func:`collage.optimize` does.

    Examples
    --------
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> mod = graph([(64, 64)], lambda emit, x: op.nn.relu(x))
    >>> found = stability(mod, ["llvm"], searches=2)
    >>> len(found.searches), found.flips, found.largest_regret
    (2, (), 0.0)
    """
    if searches < 1:
        raise UserError(f"searches={searches}: at least one is needed", value=searches)
    for name in ("log", "replay"):
        if name in options:
            raise UserError(
                f"'{name}' cannot be given: each search begins with an empty log", value=name
            )
    found: list[tuple[int, Sequence[Report]]] = []
    keys: list[object] = []
    bundles: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="collage-stability-") as name:
        for number in range(searches):
            progress(ProgressEvent("stability", number, searches, f"search {number + 1}"))
            result = optimize(
                model, targets, progress=progress, log=Path(name) / f"{number}.jsonl", **options
            )
            parts = list(result.functions.values()) or [result]
            key = [part.partitioning.key() for part in parts]
            if key not in keys:
                keys.append(key)
                bundles.append(result.export(Path(name) / f"answer-{len(bundles)}"))
            found.append((keys.index(key), [part.report for part in parts]))
        progress(ProgressEvent("stability", searches, searches, f"{len(bundles)} answers"))
        comparisons = _contest([load(folder) for folder in bundles])
    answers = tuple(_answer(number, reports) for number, reports in found)
    functions = [
        find_flips([(number, reports[place]) for number, reports in found], comparisons)
        for place in range(len(found[0][1]))
    ]
    return Stability(answers, comparisons, tuple(flip for flips in functions for flip in flips))


def _answer(number: int, reports: Sequence[Report]) -> SearchAnswer:
    chosen = [row for report in reports for row in report.end_to_end if row.chosen]
    times = [row.median_sec for row in chosen if row.median_sec is not None]
    assert len(times) == len(reports), "what is chosen was timed"
    names = ", ".join(dict.fromkeys(row.name for row in chosen))
    wall_sec = sum(report.search.wall_sec for report in reports)
    return SearchAnswer(number, names, sum(times), wall_sec)


def _contest(bundles: Sequence[Bundle]) -> tuple[PairedComparison, ...]:
    """All in each round, in another order each time."""
    calls = [max(1, round(_ROUND_SEC / _seconds(bundle, 5, warmup=2))) for bundle in bundles]
    table: list[list[float | None]] = [[] for _ in bundles]
    orders = np.random.default_rng(0).permuted(
        np.tile(np.arange(len(bundles)), (_ROUNDS, 1)), axis=1
    )
    for order in orders:
        for row in order:
            table[row].append(_seconds(bundles[row], calls[row], warmup=1))
    return tuple(paired_comparisons(table, range(len(bundles))))


def _seconds(bundle: Bundle, repeat: int, warmup: int) -> float:
    """Of one call of everything that a bundle holds: each function, for each of its shapes."""
    total = 0.0
    for function in bundle.functions.values():
        for variant in function.entry.variants:
            inputs = [random_array(info, seed) for seed, info in enumerate(variant.inputs)]
            total += float(np.median(function.benchmark(repeat, warmup, inputs)))
    return total


def find_flips(
    found: Sequence[tuple[int, Report]], comparisons: Sequence[PairedComparison]
) -> tuple[Flip, ...]:
    """Operators that are not everywhere the same backend's.

    Parameters
    ----------
    found : sequence of (int, Report)
        Which answer each search gave, and its report.
    comparisons : sequence of PairedComparison
        By answer.

    Returns
    -------
    tuple of Flip
        In the order of the operators; empty where all agree.
    """
    placed = [_backends(report) for _, report in found]
    flips = []
    for node in found[0][1].nodes:
        counts = Counter(one.get(node.index, "") for one in placed)
        if len(counts) > 1:
            # Those who differ from the best answer here have to be as good as it.
            best = next(
                p for (n, _), p in zip(found, placed, strict=True) if _is_best(n, comparisons)
            )
            others = {
                number
                for (number, _), one in zip(found, placed, strict=True)
                if one.get(node.index, "") != best.get(node.index, "")
            }
            outcome = _together([comparisons[number].outcome for number in others])
            name = found[0][1].function
            flips.append(Flip(node.index, node.op, dict(counts), outcome, name))
    return tuple(flips)


def _together(outcomes: Sequence[Outcome]) -> Outcome:
    """What is known of several answers: too few rounds prove neither a tie nor a loss."""
    if any(outcome in {Outcome.SLOWER, Outcome.LEFT} for outcome in outcomes):
        return Outcome.SLOWER
    tied = all(outcome in {Outcome.CHOSEN, Outcome.TIE} for outcome in outcomes)
    return Outcome.TIE if tied else Outcome.UNDECIDED


def _is_best(number: int, comparisons: Sequence[PairedComparison]) -> bool:
    return comparisons[number].is_chosen


def _backends(report: Report) -> dict[int, str]:
    return {
        index: part.backend for part in report.partitions if not part.inline for index in part.nodes
    }
