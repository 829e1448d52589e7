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

from collage.bundle import Bundle, load
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
        Of that answer, in its own contest.
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
    is_tie : bool
        Whether all answers with another backend there tie end to end.

    Examples
    --------
    >>> Flip(3, "relax.matmul", {"onednn": 9, "openblas": 1}, is_tie=True).is_tie
    True
    """

    node: int
    op: str
    backends: Mapping[str, int]
    is_tie: bool


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
        return tuple(flip for flip in self.flips if not flip.is_tie)


def stability(
    model: Any,
    targets: Sequence[TargetLike],
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

    Examples
    --------
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> mod = graph([(64, 64)], lambda emit, x: op.nn.relu(x))
    >>> found = stability(mod, ["llvm"], searches=2)
    >>> len(found.searches), found.flips, found.largest_regret
    (2, (), 0.0)
    """
    found: list[tuple[int, Report]] = []
    keys: list[object] = []
    bundles: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="collage-stability-") as name:
        for number in range(searches):
            progress(ProgressEvent("stability", number, searches, f"search {number + 1}"))
            result = optimize(
                model, targets, progress=progress, log=Path(name) / f"{number}.jsonl", **options
            )
            key = result.partitioning.key()
            if key not in keys:
                keys.append(key)
                bundles.append(result.export(Path(name) / f"answer-{len(bundles)}"))
            found.append((keys.index(key), result.report))
        progress(ProgressEvent("stability", searches, searches, f"{len(bundles)} answers"))
        comparisons = _contest([load(folder) for folder in bundles])
    answers = tuple(_answer(number, report) for number, report in found)
    return Stability(answers, comparisons, find_flips(found, comparisons))


def _answer(number: int, report: Report) -> SearchAnswer:
    chosen = next(row for row in report.end_to_end if row.chosen)
    assert chosen.median_sec is not None, "what is chosen was timed"
    return SearchAnswer(number, chosen.name, chosen.median_sec, report.search.wall_sec)


def _contest(bundles: Sequence[Bundle]) -> tuple[PairedComparison, ...]:
    """All in each round, in another order each time."""
    calls = [max(1, round(_ROUND_SEC / np.median(b.benchmark(5, warmup=2)))) for b in bundles]
    table: list[list[float | None]] = [[] for _ in bundles]
    orders = np.random.default_rng(0).permuted(
        np.tile(np.arange(len(bundles)), (_ROUNDS, 1)), axis=1
    )
    for order in orders:
        for row in order:
            seconds = bundles[row].benchmark(calls[row], warmup=1)
            table[row].append(float(np.median(seconds)))
    return tuple(paired_comparisons(table, range(len(bundles))))


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
    """
    placed = [_backends(report) for _, report in found]
    equal = {Outcome.CHOSEN, Outcome.TIE}
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
            is_tie = all(comparisons[number].outcome in equal for number in others)
            flips.append(Flip(node.index, node.op, dict(counts), is_tie))
    return tuple(flips)


def _is_best(number: int, comparisons: Sequence[PairedComparison]) -> bool:
    return comparisons[number].is_chosen


def _backends(report: Report) -> dict[int, str]:
    return {
        index: part.backend for part in report.partitions if not part.inline for index in part.nodes
    }
