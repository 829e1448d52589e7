"""Why this backend and not that one, operator by operator.

Costs belong to candidates of different sizes, so they are compared over equal ground: a rival
candidate together with the cheapest measured cover of what it leaves over, against the chosen
partitions of the very same operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collage.report.cover import CoverFinder, Piece, mask_of, nodes_of
from collage.report.data import EQUAL, Report
from collage.report.graph_rows import Alternative, PartitionInfo, RejectionInfo
from collage.report.units import format_time

if TYPE_CHECKING:
    from collage.search.rules import Rejection

NEVER_MEASURED = "unknown"
VALID = "valid"
NOT_NEEDED = "not measured: the search ended without needing it"


@dataclass(frozen=True)
class AlternativeCover:
    """The cheapest way found to run an operator on a backend that was not chosen for it.

    Attributes
    ----------
    backend : str
        Who would run the operator.
    region_size : int
        How many operators the comparison is over.
    median_sec, spread_sec : float
        Cost of that way over the region.
    chosen_median_sec, chosen_spread_sec : float
        Cost of the chosen partitions over the same region.
    backends : tuple of str
        Every backend with a part in this way, the operator's own first.

    Examples
    --------
    >>> way = AlternativeCover("onednn", 1, 1.2e-3, 1e-5, 1e-3, 1e-5, backends=("onednn",))
    >>> way.verdict(), way.within_noise
    ('20.0% slower', False)
    """

    backend: str
    region_size: int
    median_sec: float
    spread_sec: float
    chosen_median_sec: float
    chosen_spread_sec: float
    backends: tuple[str, ...]

    @property
    def slower_by(self) -> float:
        """Relative to the chosen partitions: 0.12 is 12 % slower, negative is faster."""
        if self.chosen_median_sec <= 0:
            return 0.0
        return self.median_sec / self.chosen_median_sec - 1.0

    @property
    def within_noise(self) -> bool:
        """Whether the difference is no larger than both spreads together."""
        noise = math.hypot(self.spread_sec, self.chosen_spread_sec)
        return abs(self.median_sec - self.chosen_median_sec) <= noise

    def verdict(self) -> str:
        """One phrase, for example ``12.0 % slower``."""
        if self.within_noise:
            return f"equal within the noise ({self.slower_by:+.1%})"
        if abs(self.slower_by) <= EQUAL:
            return f"a tie ({self.slower_by:+.1%})"
        if self.slower_by < 0:
            return f"{-self.slower_by:.1%} faster alone, but not end to end"
        if self.slower_by >= 1:
            return f"{self.slower_by + 1:.1f} times the cost"
        return f"{self.slower_by:.1%} slower"


@dataclass(frozen=True)
class WhyNot:
    """Why a backend does not run an operator; ``way`` is None when no fair cost is known.

    Examples
    --------
    >>> WhyNot("onednn", "no pattern matches").way is None
    True
    """

    backend: str
    reason: str
    way: AlternativeCover | None = None


@dataclass(frozen=True)
class NodeExplanation:
    """One operator: who runs it, as part of what, and why nobody else does.

    ``runner_up`` is the cheapest way to run it on another backend, when one was measured.

    Examples
    --------
    >>> part = PartitionInfo(0, "tvm", [3], [], "fuse_ops", 1e-6, 1e-8, "2d71")
    >>> why = NodeExplanation(3, part, None, (WhyNot("onednn", "no pattern matches"),))
    >>> why.partition.backend, why.others[0].backend
    ('tvm', 'onednn')
    """

    node: int
    partition: PartitionInfo
    runner_up: AlternativeCover | None
    others: tuple[WhyNot, ...]


def explain(report: Report) -> list[NodeExplanation]:
    """Why each operator runs where it does, by index, without inline bindings.

    Examples
    --------
    >>> from collage.report import NodeInfo
    >>> relu = NodeInfo(0, "lv", "nn.relu", "1x8", "float32", inputs=[])
    >>> part = PartitionInfo(0, "tvm", [0], [], "fuse_ops", 1e-6, 1e-8, "2d71")
    >>> keys = ['{"backend": "tvm"}', '{"backend": "onednn"}']
    >>> (node,) = explain(Report("net", "", {}, {}, keys, [relu], [part]))
    >>> node.others
    (WhyNot(backend='onednn', reason='no pattern matches', way=None),)
    """
    return Explainer(report).nodes()


class Explainer:
    """The explanations of one report, over an index of its candidates that is built once.

    Parameters
    ----------
    report : Report
        Whose partitions and alternatives are compared.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._outside = [p for p in report.partitions if not p.inline]
        self._inline = mask_of(n for p in report.partitions if p.inline for n in p.nodes)
        self._masks = {p.id: mask_of(p.nodes) for p in self._outside}
        self._partition_of = {n: p for p in self._outside for n in p.nodes}
        self._known_ways: dict[Piece, AlternativeCover | None] = {}
        self._pieces = [piece for a in report.alternatives if (piece := self._piece(a))]
        self._finder = CoverFinder(self._pieces)
        self._backends = report.backend_labels()
        self._by_node: dict[int, list[Alternative]] = {}
        for alternative in report.alternatives:
            for node in alternative.nodes:
                self._by_node.setdefault(node, []).append(alternative)
        self._ways = self._cheapest_ways()

    def nodes(self) -> list[NodeExplanation]:
        """As :func:`explain`."""
        return [self._explain_node(node) for node in sorted(self._partition_of)]

    def verdict(self, alternative: Alternative) -> str:
        """Why a candidate was not chosen, in one phrase; empty when nothing is known."""
        if alternative.chosen or alternative.reason:
            return alternative.reason
        if alternative.status == NEVER_MEASURED:
            return NOT_NEEDED
        piece = self._piece(alternative)
        way = self._way(piece) if piece else None
        return way.verdict() if way else ""

    def _piece(self, alternative: Alternative) -> Piece | None:
        if alternative.status != VALID or alternative.median_sec is None:
            return None
        nodes = mask_of(alternative.nodes) & ~self._inline
        if not nodes:
            return None
        return Piece(nodes, alternative.backend, alternative.median_sec, alternative.spread_sec)

    def _cheapest_ways(self) -> dict[tuple[int, str], AlternativeCover]:
        best: dict[tuple[int, str], AlternativeCover] = {}
        for piece in self._pieces:
            way = self._way(piece)
            if way is None:
                continue
            for node in nodes_of(piece.nodes):
                if self._partition_of[node].backend == piece.backend:
                    continue
                known = best.get((node, piece.backend))
                if known is None or _extra_sec(way) < _extra_sec(known):
                    best[node, piece.backend] = way
        return best

    def _way(self, piece: Piece) -> AlternativeCover | None:
        """``piece`` and the cheapest rest, against the chosen partitions that ``piece`` touches."""
        if piece not in self._known_ways:
            self._known_ways[piece] = self._compare(piece)
        return self._known_ways[piece]

    def _compare(self, piece: Piece) -> AlternativeCover | None:
        touched = [p for p in self._outside if self._masks[p.id] & piece.nodes]
        medians = [p.median_sec for p in touched if p.median_sec is not None]
        if len(medians) < len(touched):
            return None
        region = 0
        for partition in touched:
            region |= self._masks[partition.id]
        if piece.nodes & ~region:
            return None
        cover = self._finder.cheapest_with(piece, region)
        if cover is None:
            return None
        return AlternativeCover(
            backend=piece.backend,
            region_size=region.bit_count(),
            median_sec=cover.median_sec,
            spread_sec=cover.spread_sec,
            chosen_median_sec=math.fsum(medians),
            chosen_spread_sec=math.sqrt(math.fsum(p.spread_sec**2 for p in touched)),
            backends=tuple(dict.fromkeys(p.backend for p in cover.pieces)),
        )

    def _explain_node(self, node: int) -> NodeExplanation:
        partition = self._partition_of[node]
        others = [self._why_not(node, b) for b in self._backends if b != partition.backend]
        others.sort(key=lambda o: _extra_sec(o.way) if o.way else math.inf)
        runner_up = next((o.way for o in others if o.way), None)
        return NodeExplanation(node, partition, runner_up, tuple(others))

    def _why_not(self, node: int, backend: str) -> WhyNot:
        way = self._ways.get((node, backend))
        if way is not None:
            return WhyNot(backend, way.verdict(), way)
        candidates = [a for a in self._by_node.get(node, []) if a.backend == backend]
        measured = [a for a in candidates if a.status == VALID and a.median_sec is not None]
        if measured:
            cheapest = min(measured, key=lambda a: a.median_sec or math.inf)
            size = len(cheapest.nodes)
            if self._partition_of[node].median_sec is None:
                missing = "but the chosen partition was not measured alone"
            else:
                missing = "but nothing measured covers the rest"
            return WhyNot(
                backend,
                f"measured over {size} operator{'s' * (size > 1)} "
                f"({format_time(cheapest.median_sec, cheapest.spread_sec)}), "
                f"{missing} to compare with",
            )
        failed = [a for a in candidates if a.status not in (VALID, NEVER_MEASURED)]
        if failed:
            return WhyNot(backend, f"{failed[0].status.replace('_', ' ')}: {failed[0].reason}")
        if candidates:
            return WhyNot(backend, candidates[0].reason or NOT_NEEDED)
        return WhyNot(backend, "; ".join(refusals(self._report.rejections, node, backend)))


def refusals(
    rejections: Iterable[Rejection | RejectionInfo], node: int, backend: str
) -> tuple[str, ...]:
    """Why a backend's patterns do not take an operator; there is always a reason.

    Parameters
    ----------
    rejections : iterable of Rejection or RejectionInfo
        Of all operators and backends.
    node : int
        The operator's index.
    backend : str
        Whose patterns.

    Returns
    -------
    tuple of str
        ``pattern: reason``, each once, or that no pattern matches.

    Examples
    --------
    >>> refusals([RejectionInfo(3, "onednn", "onednn.conv2d", "dilated")], 3, "onednn")
    ('onednn.conv2d: dilated',)
    >>> refusals([], 3, "onednn")
    ('no pattern matches',)
    """
    reasons = dict.fromkeys(
        f"{r.pattern}: {r.reason}" for r in rejections if (r.node, r.backend) == (node, backend)
    )
    return tuple(reasons) or ("no pattern matches",)


def _extra_sec(way: AlternativeCover) -> float:
    return way.median_sec - way.chosen_median_sec
