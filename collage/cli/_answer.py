"""What ``collage optimize`` says of its answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from collage.cli.terminal import out

if TYPE_CHECKING:
    from collage.report import Report


def print_answer(report: Report, folder: Path, log: str | None) -> None:
    """For people: the summary, and where everything is.

    Parameters
    ----------
    report : Report
        Of the search.
    folder : Path
        The bundle's.
    log : str or None
        A file or a database's name; none where nothing was kept.
    """
    from collage.report import summary

    console = out()
    console.print(summary(report))
    for name, place in _places(folder, log).items():
        console.print(f"{name:<7} {place}", highlight=False, markup=False, soft_wrap=True)


def as_json(report: Report, folder: Path, log: str | None) -> dict[str, Any]:
    """For programs.

    Parameters
    ----------
    report, folder, log
        As :func:`print_answer` takes them.

    Returns
    -------
    dict
        With ``bundle``, ``report`` and ``log`` as places, and times in seconds.
    """
    from dataclasses import asdict

    from collage.report import backend_colors, shares

    backends = [
        {
            "backend": share.backend,
            "operators": share.operators,
            "partitions": share.partitions,
            "unmeasured": share.unmeasured,
            "sum_sec": share.sec,
        }
        for share in shares(report, backend_colors(report.backend_labels()))
    ]
    return {
        **_places(folder, log),
        "model": report.model,
        "backends": backends,
        "end_to_end": [asdict(row) for row in report.end_to_end],
        "search": asdict(report.search),
        "workers": [asdict(use) for use in report.workers],
        "builders": asdict(report.builders),
        "outputs_max_rel_diff": report.outputs_max_rel_diff,
        "outputs_rounding_rel_diff": report.outputs_rounding_rel_diff,
        "remarks": report.remarks,
    }


def _places(folder: Path, log: str | None) -> dict[str, str]:
    from collage.pipeline.results.result import REPORT_HTML

    places = {"bundle": str(folder), "report": str(folder / REPORT_HTML)}
    if log is not None:
        places["log"] = log
    return places
