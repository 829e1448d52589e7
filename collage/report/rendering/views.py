"""What the report's page shows, worked out of the data: headline, bars, shares and table rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from collage.report.data import EndToEnd, Report
from collage.report.explain import Explainer
from collage.report.graph_rows import Alternative
from collage.report.memory import size_text
from collage.report.rendering.figure import operator_summary
from collage.report.units import format_interval, format_sec, format_time
from collage.report.verdict import verdict_of


@dataclass(frozen=True)
class Bar:
    """A horizontal bar; positions are percent of the chart's width."""

    label: str
    text: str
    width: float
    low: float = 0.0
    high: float = 0.0
    color: str = ""
    note: str = ""
    chosen: bool = False
    partition: int = -1


@dataclass(frozen=True)
class Share:
    """What one backend does of the whole: operators, partitions and seconds.

    ``unmeasured`` of its partitions have no cost of their own: a search that ran out of time, or
    none at all, has only the whole model's time.
    """

    backend: str
    color: str
    operators: int
    partitions: int
    unmeasured: int
    sec: float
    percent: float

    @property
    def time(self) -> str:
        """The seconds in words, frank about what is missing."""
        if self.unmeasured == self.partitions:
            return "not measured alone"
        rest = f" and {self.unmeasured} not measured" if self.unmeasured else ""
        return f"{format_sec(self.sec)} ({self.percent:.1f} %){rest}"


@dataclass(frozen=True)
class Tile:
    """One figure of the headline row."""

    value: str
    label: str
    note: str = ""


def headline(report: Report) -> list[Tile]:
    """The figures a reader looks for first; those that were not measured are left out."""
    tiles = []
    chosen = next((e for e in report.end_to_end if e.chosen and e.median_sec), None)
    if chosen is not None:
        time = format_time(chosen.median_sec, chosen.spread_sec)
        tiles.append(Tile(time, "per call, end to end", chosen.name))
        for kinds, label in (
            (("single", "greedy"), "the best single backend"),
            (("peer",), "peer"),
        ):
            rivals = [e for e in report.end_to_end if e.kind in kinds and e.median_sec]
            if rivals:
                best = min(rivals, key=lambda e: e.median_sec or math.inf)
                tiles.append(_ratio(best, chosen, best.name if label == "peer" else label))
    outside = [p for p in report.partitions if not p.inline]
    operators = sum(len(p.nodes) for p in outside)
    backends = len({p.backend for p in outside})
    tiles.append(
        Tile(
            str(len(outside)),
            "partitions",
            f"{operators} operators on {_plural(backends, 'backend')}",
        )
    )
    if chosen is not None and chosen.memory is not None:
        total, _, parts = str(chosen.memory).partition(": ")
        tiles.append(Tile(total, "of memory", parts))
    if report.outputs_max_rel_diff is not None:
        rounding = report.outputs_rounding_rel_diff
        note = "relative" if rounding is None else f"relative; rounding alone: {rounding:.1e}"
        if report.remarks:
            note = f"{note}; {'; '.join(report.remarks)}"
        tiles.append(Tile(f"{report.outputs_max_rel_diff:.1e}", "largest output difference", note))
    stats = report.search
    note = f"{stats.measured} measured, {stats.from_log} from the log"
    tiles.append(Tile(format_sec(stats.wall_sec), "search", note))
    return tiles


def _ratio(rival: EndToEnd, chosen: EndToEnd, label: str) -> Tile:
    ratio = (rival.median_sec or 0.0) / (chosen.median_sec or math.inf)
    return Tile(f"{ratio:.2f}×", f"the speed of {label}", rival.name if label != rival.name else "")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def end_to_end_bars(report: Report, colors: dict[str, str]) -> list[Bar]:
    """Fastest first; whiskers span the spread; what did not run comes last, with its note.

    The chosen one's bar is divided in proportion to its partitions' costs by backend.

    Parameters
    ----------
    report : Report
        What is shown.
    colors : dict of str to str
        A colour for each backend, see :func:`collage.report.rendering.palette.backend_colors`.

    Returns
    -------
    list of Bar
        One for each contender.
    """
    rows = report.end_to_end
    mixed = _stripes(shares(report, colors))
    chosen = next((e.median_sec for e in rows if e.chosen and e.median_sec), None)
    tops = [(e.median_sec or 0.0) + e.spread_sec for e in rows]
    scale = 100 / max(tops) if tops and max(tops) > 0 else 0.0
    bars = []
    for row in sorted(rows, key=lambda e: e.median_sec or math.inf):
        text = format_time(row.median_sec, row.spread_sec)
        if row.median_sec and chosen and not row.chosen:
            text += f" ({row.median_sec / chosen:.2f}×)"
        median = row.median_sec or 0.0
        bars.append(
            Bar(
                label=row.name,
                text=text if row.median_sec else "did not run",
                width=median * scale,
                low=max(median - row.spread_sec, 0.0) * scale,
                high=(median + row.spread_sec) * scale,
                color=mixed if row.chosen else colors.get(row.name.rpartition(":")[2], ""),
                note="; ".join(
                    part
                    for part in (
                        row.note,
                        verdict_of(row, rows),
                        _error_text(report, row),
                        _sum_text(row),
                        size_text(row.memory.total_bytes) if row.memory and row.n else "",
                        f"n = {row.n}" if row.n else "",
                    )
                    if part
                ),
                chosen=row.chosen,
            )
        )
    return bars


def _error_text(report: Report, row: EndToEnd) -> str:
    """How far it is off, where that was a matter of choice."""
    if report.max_error is None or row.largest_error is None or not row.median_sec:
        return ""
    return f"off by {row.largest_error:.1e}"


def _sum_text(row: EndToEnd) -> str:
    """What its parts take alone, beside what the whole takes."""
    if not row.sum_sec or not row.median_sec:
        return ""
    about = "about " if row.sum_is_guessed else ""
    whole = f"the whole {row.median_sec / row.sum_sec:.2f}×"
    return f"parts alone {about}{format_sec(row.sum_sec)}, {whole}"


def _stripes(parts: Sequence[Share]) -> str:
    """A CSS gradient without blending; by operators where no time is known."""
    timed = any(part.percent for part in parts)
    operators = sum(part.operators for part in parts)
    stops, left = [], 0.0
    for part in parts:
        percent = part.percent if timed else 100 * part.operators / operators
        stops.append(f"{part.color} {left:.2f}% {left + percent:.2f}%")
        left += percent
    return f"linear-gradient(to right, {', '.join(stops)})" if stops else ""


def shares(report: Report, colors: dict[str, str]) -> list[Share]:
    """What each chosen backend does, dearest first.

    Parameters
    ----------
    report, colors
        As :func:`end_to_end_bars` takes them.

    Returns
    -------
    list of Share
        Together they hold every operator that is not inline.

    Examples
    --------
    >>> from collage.report import NodeInfo, PartitionInfo
    >>> relu = NodeInfo(0, "lv", "nn.relu", "1x8", "float32", inputs=[])
    >>> part = PartitionInfo(0, "tvm", [0], [], "fuse_ops", 1e-6, 1e-8, "2d71")
    >>> (share,) = shares(Report("net", "", {}, {}, [], [relu], [part]), {"tvm": "#4477aa"})
    >>> share.backend, share.time
    ('tvm', '1.00 µs (100.0 %)')
    """
    outside = [p for p in report.partitions if not p.inline]
    total = math.fsum(p.median_sec or 0.0 for p in outside)
    sec = {b: math.fsum(p.median_sec or 0.0 for p in outside if p.backend == b) for b in colors}
    rows = [
        Share(
            backend=backend,
            color=colors[backend],
            operators=sum(len(p.nodes) for p in outside if p.backend == backend),
            partitions=sum(p.backend == backend for p in outside),
            unmeasured=sum(p.backend == backend and p.median_sec is None for p in outside),
            sec=sec[backend],
            percent=100 * sec[backend] / total if total else 0.0,
        )
        for backend in colors
        if any(p.backend == backend for p in outside)
    ]
    return sorted(rows, key=lambda share: -share.sec)


def partition_bars(report: Report, colors: dict[str, str]) -> list[Bar]:
    """The cost of every partition that was measured, dearest first.

    Parameters
    ----------
    report, colors
        As :func:`end_to_end_bars` takes them.

    Returns
    -------
    list of Bar
        Of the scale of the dearest one.
    """
    nodes = {node.index: node for node in report.nodes}
    measured = [p for p in report.partitions if not p.inline and p.median_sec is not None]
    measured.sort(key=lambda p: -(p.median_sec or 0.0))
    tops = [(p.median_sec or 0.0) + p.spread_sec for p in measured]
    scale = 100 / max(tops) if tops and max(tops) > 0 else 0.0
    return [
        Bar(
            label=f"{p.id} · {p.backend}",
            text=format_time(p.median_sec, p.spread_sec),
            width=(p.median_sec or 0.0) * scale,
            low=max((p.median_sec or 0.0) - p.spread_sec, 0.0) * scale,
            high=((p.median_sec or 0.0) + p.spread_sec) * scale,
            color=colors[p.backend],
            note=operator_summary([nodes[i] for i in p.nodes]),
            partition=p.id,
        )
        for p in measured
    ]


def candidate_rows(report: Report, explainer: Explainer) -> list[list[Any]]:
    """The candidates table as plain rows, which the page's script filters, sorts and shows.

    Columns: backend, operators, number of operators, node indices, rule, status, median in
    seconds or None, that time as text, reason, whether it was chosen.

    Parameters
    ----------
    report : Report
        What is shown.
    explainer : Explainer
        Of the same report.

    Returns
    -------
    list of list
        The chosen ones first.
    """
    nodes = {node.index: node for node in report.nodes}

    def row(a: Alternative) -> list[Any]:
        summary = operator_summary([nodes[i] for i in a.nodes])
        time = format_time(a.median_sec, a.spread_sec)
        if a.n:
            time += f" ({format_interval(a.low_sec, a.high_sec, a.n)})"
        where = index_ranges(a.nodes)
        reason = explainer.verdict(a)
        return [
            a.backend,
            summary,
            len(a.nodes),
            where,
            a.rule,
            a.status.replace("_", " "),
            a.median_sec,
            time,
            reason,
            a.chosen,
        ]

    order = sorted(report.alternatives, key=lambda a: (not a.chosen, min(a.nodes, default=-1)))
    return [row(a) for a in order]


def index_ranges(indices: Iterable[int]) -> str:
    """``[1, 2, 3, 7]`` as ``1–3, 7``."""
    parts: list[list[int]] = []
    for index in sorted(indices):
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ", ".join(f"{a}–{b}" if b > a else str(a) for a, b in parts)


def refusals(report: Report) -> list[tuple[str, str, str, int, str]]:
    """Predicates' refusals, grouped: backend, pattern, reason, how often, at which nodes."""
    at: dict[tuple[str, str, str], set[int]] = {}
    for r in report.rejections:
        at.setdefault((r.backend, r.pattern, r.reason), set()).add(r.node)
    order = sorted(at, key=lambda key: -len(at[key]))
    return [(*key, len(at[key]), index_ranges(at[key])) for key in order]
