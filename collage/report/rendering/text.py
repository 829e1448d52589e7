"""The report in a terminal: rich tables for the command line."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from collage.report.data import Report
from collage.report.explain import explain
from collage.report.progress import how_far
from collage.report.rendering.figure import operator_summary
from collage.report.rendering.palette import backend_colors
from collage.report.rendering.views import end_to_end_bars, shares
from collage.report.units import format_cost, format_sec, format_time
from collage.report.verdict import disturbances
from collage.report.workers import is_worth_a_table


def summary(report: Report) -> RenderableType:
    """Which backend got which operators, and the whole model's time against everything else.

    Examples
    --------
    >>> report = Report("net", "", device={}, versions={}, targets=[], nodes=[], partitions=[])
    >>> summary(report).renderables[-1].plain
    'search 0.00 ...: 0 candidates, 0 distinct workloads, 0 measured, 0 from the log, 0 invalid'
    """
    parts: list[RenderableType] = [_backends(report)]
    if report.end_to_end:
        parts.append(_end_to_end(report))
        if disturbed := disturbances(report.end_to_end):
            parts.append(Text(disturbed))
    if report.outputs_max_rel_diff is not None:
        rounding = report.outputs_rounding_rel_diff
        beside = "" if rounding is None else f"; rounding alone: {rounding:.2e}"
        difference = f"{report.outputs_max_rel_diff:.2e} (relative{beside})"
        parts.append(Text(f"largest output difference {difference}"))
    parts.extend(Text(remark) for remark in report.remarks)
    stats = report.search
    parts.append(
        Text(
            f"search {format_sec(stats.wall_sec)}: {stats.candidates} candidates, "
            f"{stats.distinct_workloads} distinct workloads, {stats.measured} measured, "
            f"{stats.from_log} from the log, {stats.invalid} invalid"
        )
    )
    if is_worth_a_table(report.workers):
        parts.append(_workers(report))
    if progress := how_far(stats):
        parts.append(Text(progress))
    for other in report.others:
        parts += [_heading(other), summary(other)]
    return Group(*([_heading(report)] if report.others else []), *parts)


def _heading(report: Report) -> RenderableType:
    return Rule(Text(f"function {report.function}"), align="left")


def explanation(report: Report) -> RenderableType:
    """For every operator: who runs it, the runner-up, both costs, and why not the others.

    Examples
    --------
    >>> report = Report("net", "", device={}, versions={}, targets=[], nodes=[], partitions=[])
    >>> [column.header for column in explanation(report).columns][:4]
    ['#', 'operator', 'output', 'chosen']
    """
    colors = backend_colors(report.backend_labels())
    nodes = {node.index: node for node in report.nodes}
    table = _table("#", "operator", "output", "chosen", "cost", "runner-up", "cost", "why not")
    for e in explain(report):
        p, way = e.partition, e.runner_up
        cost = format_cost(p)
        rival = format_time(way.median_sec, way.spread_sec) if way else ""
        if way and way.region_size != len(p.nodes):
            rival += f"\nover {way.region_size} ops, chosen {format_sec(way.chosen_median_sec)}"
        table.add_row(
            str(e.node),
            Text(nodes[e.node].op),
            Text(nodes[e.node].shape),
            Text(p.backend, style=colors[p.backend]),
            f"{cost}\npartition {p.id}, {len(p.nodes)} ops",
            Text(way.backend, style=colors[way.backend]) if way else Text("none measured"),
            rival,
            Text("\n".join(f"{o.backend}: {o.reason}" for o in e.others)),
        )
    return table


def _backends(report: Report) -> Table:
    colors = backend_colors(report.backend_labels())
    nodes = {node.index: node for node in report.nodes}
    table = _table("backend", "partitions", "time", "operators")
    for share in shares(report, colors):
        mine = [p for p in report.partitions if p.backend == share.backend and not p.inline]
        table.add_row(
            Text(share.backend, style=share.color),
            str(share.partitions),
            share.time,
            Text(operator_summary([nodes[i] for p in mine for i in p.nodes])),
        )
    return table


def _workers(report: Report) -> Table:
    table = _table("worker", "timed", "busy", "note")
    for use in report.workers:
        note = f"left out: {use.left_out}" if use.left_out else ""
        table.add_row(Text(use.name), Text(use.what), use.how_long, Text(note))
    return table


def _end_to_end(report: Report) -> Table:
    table = _table("end to end", "median ± spread", "note")
    for bar in end_to_end_bars(report, {}):
        style = "bold" if bar.chosen else ""
        note = f"chosen; {bar.note}" if bar.chosen else bar.note
        table.add_row(Text(bar.label), Text(bar.text), Text(note), style=style)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table
