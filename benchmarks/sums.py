"""What sums of parts say of whole models, and what searching again with corrected costs gains.

``python -m benchmarks.sums NETWORK ...`` searches each network with no log, and keeps one row a
network in ``benchmarks/results/sums.json``; a network that is there already on this commit is left
out. ``sums.md`` is written anew each time. Networks are the zoo's, or ``light:`` and one of the
``onnx`` package's.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import collage
from benchmarks.gpu.networks import build
from benchmarks.timing.machine import commit, machine, now
from benchmarks.zoo.families import NETWORKS
from collage.report import EndToEnd

RESULTS = Path(__file__).parent / "results"
TARGETS = ("llvm", "onednn", "openblas")
_LIGHT = "light:"

Row = dict[str, Any]


def search(network: str) -> Row:
    """What one search with no log found.

    Parameters
    ----------
    network : str
        Of the zoo, or a light model's with its prefix.

    Returns
    -------
    dict
        ``contenders``, each with ``whole_ms`` and ``sum_ms``; how the last answer stands against
        the first, ``ratio`` with ``low`` and ``high``; seconds.
    """
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        if network.startswith(_LIGHT):
            from benchmarks.networks.models import light_model

            model = light_model(network.removeprefix(_LIGHT))
            result = collage.optimize(model, TARGETS, log=log)
        else:
            chosen = NETWORKS[network]
            result = collage.optimize(
                build(network, 0), TARGETS, example_inputs=chosen.draw(0), log=log
            )
    rows = result.report.end_to_end
    return {
        "network": network,
        "commit": commit(),
        "when": now(),
        "machine": machine(),
        "search_sec": time.perf_counter() - begin,
        "contenders": [_contender(row) for row in rows if row.median_sec],
        "chosen": next(row.name for row in rows if row.chosen),
        **_against_the_first(rows),
    }


def _contender(row: EndToEnd) -> Row:
    return {
        "name": row.name,
        "whole_ms": 1e3 * (row.median_sec or 0.0),
        "sum_ms": 1e3 * row.sum_sec if row.sum_sec and not row.sum_is_guessed else None,
    }


def _against_the_first(rows: Sequence[EndToEnd]) -> Row:
    """The best of what there was without searching again, over the chosen one: in one contest."""
    first = [row for row in rows if row.ratio and not row.name.startswith("search:")]
    best = min(first, key=lambda row: row.ratio or 0.0, default=None)
    if best is None:
        return {"ratio": 1.0, "low": None, "high": None}
    return {"ratio": best.ratio, "low": best.ratio_low, "high": best.ratio_high}


def page(rows: Sequence[Row]) -> str:
    """The rows as Markdown.

    Parameters
    ----------
    rows : sequence of dict
        As :func:`search` gives them.
    """
    lines = [
        "# Sums and wholes",
        "",
        f"`python -m benchmarks.sums ...`, targets {', '.join(TARGETS)}, float32, two threads,",
        "with no log and no budget. Sum: what the parts of the search's first answer take alone.",
        "Whole: what it took. Gained: the time of the best that there was without searching again",
        "over that of the answer in the bundle, median and interval over the rounds of one",
        "contest; 1 where no further answer was faster.",
        "",
        "| network | first sum, ms | whole, ms | whole / sum | further answers | chosen | gained | "
        "search, s | load | commit |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | --- |",
        *map(_line, rows),
        "",
        f"On {rows[0]['machine']['cpu']}, {rows[0]['machine']['cores']} cores." if rows else "",
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    by_name = {one["name"]: one for one in row["contenders"]}
    first = by_name.get("search") or row["contenders"][0]
    sum_ms = first["sum_ms"]
    further = sum(name.startswith("search:") for name in by_name)
    between = f" ({row['low']:.2f}–{row['high']:.2f})" if row["low"] and row["high"] else ""
    gained = f"{row['ratio']:.2f}{between}" if row["chosen"].startswith("search:") else "1"
    ratio = f"{first['whole_ms'] / sum_ms:.2f}" if sum_ms else ""
    cells = [
        row["network"],
        f"{sum_ms:.3f}" if sum_ms else "",
        f"{first['whole_ms']:.3f}",
        ratio,
        str(further),
        row["chosen"],
        gained,
        f"{row['search_sec']:.0f}",
        row["machine"]["load_average_before"],
        row["commit"][:7],
    ]
    return f"| {' | '.join(cells)} |"


def main(networks: Annotated[list[str], typer.Argument(help="names, or light:NAME")]) -> None:
    """Search networks and write the table."""
    place = RESULTS / "sums.json"
    rows: list[Row] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    for network in networks:
        if any(row["network"] == network and row["commit"] == commit() for row in rows):
            continue
        row = search(network)
        rows = [*(one for one in rows if one["network"] != network), row]
        place.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "sums.md").write_text(page(rows), encoding="utf-8")
        typer.echo(_line(row))


if __name__ == "__main__":
    typer.run(main)
