"""The report in about ten lines of plain text, and in a notebook's cell."""

from __future__ import annotations

import html

from collage.report.data import Report
from collage.report.progress import how_far
from collage.report.rendering.html import render_html
from collage.report.rendering.palette import backend_colors
from collage.report.rendering.views import end_to_end_bars, shares
from collage.report.units import format_sec

_CONTENDERS = 4
_FRAME_PIXELS = 720


def brief(report: Report) -> str:
    """What was chosen, the times, who runs what, and how far the search came.

    Examples
    --------
    >>> from collage.report import EndToEnd, PartitionInfo
    >>> rows = [EndToEnd("search", 2e-3, 1e-5, n=9, chosen=True), EndToEnd("greedy", 3e-3, 0.0, 9)]
    >>> part = PartitionInfo(0, "onednn", [0, 1], [], "joined", 2e-3, 1e-5, "2d71")
    >>> lists = {"targets": [], "nodes": [], "partitions": [part], "end_to_end": rows}
    >>> print(brief(Report("net", "", device={"name": "a CPU"}, versions={}, **lists)))
    net on a CPU: search is chosen, 2.00 ms ± 0.01 a call
      greedy: 3.00 ms ± 0.00 (1.50×), n = 9
      onednn: 1 partition, 2 operators, 2.00 ms (100.0 %)
      search 0.00 ...: 0 candidates, 0 measured, 0 from the log
    """
    colors = backend_colors(report.backend_labels())
    bars = end_to_end_bars(report, colors)
    chosen = next((bar for bar in bars if bar.chosen), None)
    where = report.device.get("name", "")
    head = f"{report.model} on {where}" if where else report.model
    lines = [f"{head}: {chosen.label} is chosen, {chosen.text} a call" if chosen else head]
    others = [bar for bar in bars if not bar.chosen]
    lines += [f"  {bar.label}: {bar.text}, {bar.note}" for bar in others[:_CONTENDERS]]
    if len(others) > _CONTENDERS:
        lines.append(f"  and {len(others) - _CONTENDERS} more")
    for share in shares(report, colors):
        parts = f"{share.partitions} partition{'s' if share.partitions != 1 else ''}"
        lines.append(f"  {share.backend}: {parts}, {share.operators} operators, {share.time}")
    if report.outputs_max_rel_diff is not None:
        lines.append(f"  largest output difference {report.outputs_max_rel_diff:.1e} (relative)")
    stats = report.search
    lines.append(
        f"  search {format_sec(stats.wall_sec)}: {stats.candidates} candidates, "
        f"{stats.measured} measured, {stats.from_log} from the log"
    )
    if proof := how_far(stats):
        lines.append(f"  {proof}")
    return "\n".join(lines)


def notebook_frame(report: Report) -> str:
    """The whole report in a frame of its own, whose styles and scripts touch nothing else.

    Examples
    --------
    >>> report = Report("a <net>", "", device={}, versions={}, targets=[], nodes=[], partitions=[])
    >>> notebook_frame(report)[:22]
    '<iframe sandbox="allow'
    """
    page = html.escape(render_html(report), quote=True)
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{page}" '
        f'style="width: 100%; height: {_FRAME_PIXELS}px; border: 0"></iframe>'
    )
