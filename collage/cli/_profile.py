"""What ``collage bench --profile`` prints: where the time of a call goes."""

from __future__ import annotations

import dataclasses
import json as json_module
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from collage.backends.contract.errors import OutputError
from collage.cli.terminal import out, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from collage.bundle import Bundle, Profile
    from collage.report import Report

_BAR = 24
"""Characters of the widest bar."""

_ROWS = 40
"""Kernels that are shown; the others are summed up in the last row."""


def show_profile(
    bundle: Bundle, repeat: int, warmup: int, trace: Path | None, *, json: bool
) -> None:
    """Profile a bundle and print it, the dearest kernels first.

    Parameters
    ----------
    bundle : Bundle
        Loaded.
    repeat, warmup : int
        Calls that are timed, and calls before them.
    trace : Path, optional
        Where a Chrome trace is written.
    json : bool
        For programs.

    Raises
    ------
    OutputError
        When the trace cannot be written.
    """
    from collage.report import format_sec

    if trace is not None:
        _write(trace, "")  # Found out before the model runs.
    found = bundle.profile(repeat, warmup)
    if trace is not None:
        _write(trace, json_module.dumps(found.chrome_trace()))
    if json:
        kernels = [dataclasses.asdict(kernel) for kernel in found.kernels]
        print_json({**dataclasses.asdict(found), "kernels": kernels, "bundle": str(bundle.folder)})
        return
    out().print(_table(found, _operators(bundle.report)))
    total = ", ".join(f"{name} {format_sec(sec)}" for name, sec in found.by_backend().items())
    out().print(
        f"kernels {format_sec(found.kernels_sec)} ({total}); a whole call "
        f"{format_sec(found.call_sec)}, of it outside kernels {format_sec(found.outside_sec)}; "
        f"copying memory reaches {found.copy_bytes_per_sec / 1e9:.1f} GB/s on one thread here "
        f"(n = {found.repeat})",
        highlight=False,
    )
    if trace is not None:
        out().print(f"wrote {trace}", highlight=False, markup=False)


def _table(profile: Profile, operators: dict[str, str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from collage.report import backend_colors, format_sec, format_time

    colors = backend_colors(list(profile.by_backend()))
    table = Table(box=None, pad_edge=False)
    for title in ("kernel", "backend", "time", "share", ""):
        table.add_column(title, justify="right" if title in ("time", "share") else "left")
    table.add_column("GB/s", justify="right")
    ordered = sorted(profile.kernels, key=lambda kernel: -kernel.median_sec)
    widest = max((profile.share(kernel) for kernel in ordered), default=1.0) or 1.0
    for kernel in ordered[:_ROWS]:
        share = profile.share(kernel)
        bar = Text("█" * max(1, round(_BAR * share / widest)), style=colors[kernel.backend])
        name = operators.get(kernel.symbol, "")
        table.add_row(
            f"{kernel.symbol}  {name}".strip(),
            Text(kernel.backend, style=colors[kernel.backend]),
            format_time(kernel.median_sec, kernel.spread_sec),
            f"{share:.1%}",
            bar,
            f"{kernel.bytes_per_sec / 1e9:.1f}",
        )
    if rest := ordered[_ROWS:]:
        seconds = sum(kernel.median_sec for kernel in rest)
        percent = f"{sum(map(profile.share, rest)):.1%}"
        table.add_row(f"{len(rest)} more", "", format_sec(seconds), percent, "", "")
    return table


def _operators(report: Report) -> dict[str, str]:
    """What the partitions of libraries hold, by the names that their functions have."""
    from collage.report.rendering.figure import operator_summary

    nodes = {node.index: node for node in report.nodes}
    counts: Counter[str] = Counter()
    found = {}
    for part in report.partitions:
        if not part.inline:
            name = f"{part.backend}_{counts[part.backend]}"
            counts[part.backend] += 1
            found[name] = operator_summary([nodes[index] for index in part.nodes])
    return found


def _write(trace: Path, text: str) -> None:
    try:
        trace.write_text(text)
    except OSError as error:
        raise OutputError(f"cannot write '{trace}': {error.strerror}", value=trace) from error
