"""``collage log``: what a log holds, and logs put together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collage.cli import _log_copy
from collage.cli.terminal import out, print_json
from collage.cli.terminal.options import Debug, Json, check_log, example

if TYPE_CHECKING:
    from rich.console import RenderableType

    from collage.cost.database import Database, Record


class _SummaryByDefault(typer.core.TyperGroup):
    """``collage log FILE`` is ``collage log summary FILE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["summary", *args]
        return super().parse_args(ctx, args)


def add_to(app: typer.Typer) -> None:
    log = typer.Typer(
        cls=_SummaryByDefault,
        help="Summarize a log ('collage log FILE'), merge several, or move them.",
        no_args_is_help=True,
        epilog=example(
            "collage log resnet50.jsonl", "collage log merge a.jsonl b.jsonl -o all.jsonl"
        ),
    )
    log.command("summary", epilog=example("collage log resnet50.jsonl"))(_summary)
    _log_copy.add_to(log)
    app.add_typer(log, name="log")


LogPlace = Annotated[str, typer.Argument(metavar="FILE|URL", help="A log of measurements.")]


def _summary(log: LogPlace, json: Json = False, debug: Debug = False) -> None:
    """What a log holds: records, workloads, backends, devices, failures, unreadable lines."""
    from collage.cost.database import open_database

    check_log(log, must_exist=True)
    database = open_database(log, read_only=True)
    counts = _Counts.of(database)
    blobs = counts.blobs
    value = {
        "log": database.name,
        "records": counts.kinds.total(),
        "distinct_workloads": len(counts.workloads),
        "kinds": dict(counts.kinds),
        "backends": dict(counts.backends),
        "devices": dict(counts.devices),
        "invalid": [
            {"backend": backend, "status": status, "reason": reason, "records": count}
            for (backend, status, reason), count in counts.invalid.most_common()
        ],
        "tuned": dict(Counter(finding.backend for finding in database.findings())),
        "blobs": {"count": len(blobs), "bytes": sum(blobs)},
        "problems": [str(problem) for problem in database.problems],
    }
    if json:
        print_json(value)
        return
    console = out()

    def line(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    line(
        f"{database.name}: {value['records']} records of {value['distinct_workloads']} "
        "distinct workloads"
    )
    for name in ("kinds", "backends", "devices", "tuned"):
        found = value[name]
        assert isinstance(found, dict)
        if name == "tuned" and not found:
            continue
        line(f"{name}: " + ", ".join(f"{key} ({count})" for key, count in found.items()))
    if blobs:
        line(f"bytes that findings refer to: {sum(blobs)} in {len(blobs)} blobs")
    line(f"invalid: {counts.invalid.total()}")
    for (backend, status, reason), count in counts.invalid.most_common():
        line(f"  {count} × {backend} {status.replace('_', ' ')}: {reason}")
    line(f"lines that could not be read: {len(database.problems)}")
    for problem in database.problems:
        line(f"  {problem}")


@dataclass
class _Counts:
    """What there is of everything, gathered in one pass: a log may not fit into memory."""

    kinds: Counter[str] = field(default_factory=Counter)
    backends: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    invalid: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    workloads: set[int] = field(default_factory=set)
    blobs: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, database: Database) -> _Counts:
        made = cls(blobs=[blob.size for blob in database.blobs()])
        for record in database.records():
            made.kinds[record.key.kind] += 1
            made.backends[record.backend] += 1
            made.devices[f"{record.key.device}, {record.key.num_threads} threads"] += 1
            made.workloads.add(hash(_workload(record)))
            if not record.cost.is_valid:
                made.invalid[record.backend, record.cost.status.value, record.cost.reason] += 1
        return made


def ranking(log: str) -> RenderableType:
    """For each workload of a log, what it costs on every backend, cheapest first.

    A workload's key belongs to one backend's partition, so what several backends did is told by
    the operators' description and the tensors' shapes.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from collage.cost.database import open_database
    from collage.cost.database.record import TRANSITION
    from collage.report import format_time

    check_log(log, must_exist=True)
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in open_database(log, read_only=True).records():
        if record.key.kind == TRANSITION:
            continue
        groups.setdefault(_workload(record), []).append(record)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("workload", "tensors", "backend", "cost", "against the cheapest"):
        table.add_column(column)

    def dearest_first(group: tuple[str, ...]) -> float:
        valid = [r.cost.median_sec for r in groups[group] if r.cost.is_valid]
        return -min(valid, default=0.0)

    order = sorted(groups, key=dearest_first)
    for group in order:
        records = sorted(_newest(groups[group]), key=lambda r: r.cost.median_sec)
        best_sec = records[0].cost.median_sec
        for i, record in enumerate(records):
            cost = record.cost
            if not cost.is_valid:
                note = f"{cost.status.value.replace('_', ' ')}: {cost.reason}"
            else:
                note = "cheapest" if i == 0 else f"{cost.median_sec / best_sec:.2f}×"
            time = format_time(cost.median_sec, cost.spread_sec) if cost.is_valid else ""
            table.add_row(
                Text(record.description if i == 0 else ""),
                Text(record.key.tensors if i == 0 else ""),
                Text(record.backend),
                time,
                Text(note),
                end_section=i == len(records) - 1,
            )
    return table


def _newest(records: list[Record]) -> list[Record]:
    """Of measurements that only differ in versions or configuration, the last."""
    newest: dict[tuple[str, ...], Record] = {}
    for record in sorted(records, key=lambda r: r.measured_at):
        newest[record.backend, record.key.target, record.key.workload] = record
    return list(newest.values())


def _workload(record: Record) -> tuple[str, ...]:
    key = record.key
    name = record.description or key.workload
    return (key.kind, name, key.tensors, key.device, str(key.num_threads))
