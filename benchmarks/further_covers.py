"""What timing the search's best three covers whole gains over timing its answer alone.

``python -m benchmarks.further_covers NETWORK ...`` searches each network with no log and
``covers=1``, then with the candidates' times of that log and ``covers=3``. Where the two results
differ, they are timed against each other, in rounds. One row a network is kept in
``benchmarks/results/further_covers.json``; ``further_covers.md`` is written anew each time.
Networks are the zoo's, or ``light:`` and one of the ``onnx`` package's. With ``--logs FOLDER`` the
logs stay there.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import collage
from benchmarks.timing.machine import commit, machine, now
from collage.bundle import Bundle, random_array
from collage.cost.contest import paired_comparisons
from collage.cost.progress import ProgressEvent
from collage.pipeline import Result
from collage.report import EndToEnd

RESULTS = Path(__file__).parent / "results"
LIGHT = "light:"
_ROUNDS = 16
_ROUND_SEC = 0.2

Row = dict[str, Any]


def asked(network: str) -> tuple[Any, Mapping[str, Any]]:
    """A network's model, and what else ``collage.optimize`` is given for it."""
    if network.startswith(LIGHT):
        from benchmarks.networks.models import light_model

        return light_model(network.removeprefix(LIGHT)), {}
    from benchmarks.gpu.networks import build
    from benchmarks.zoo.families import NETWORKS

    return build(network, 0), {"example_inputs": NETWORKS[network].draw(0)}


class Timed:
    """One search, with the seconds from its first whole model on."""

    def __init__(
        self, network: str, targets: Sequence[str], log: Path, covers: int, threads: int
    ) -> None:
        model, options = asked(network)
        self._whole: float | None = None
        self.result: Result = collage.optimize(
            model,
            targets,
            log=log,
            covers=covers,
            num_threads=threads,
            progress=self._note,
            **options,
        )
        self.whole_sec = time.perf_counter() - (self._whole or time.perf_counter())

    def _note(self, event: ProgressEvent) -> None:
        if event.stage == "compile" and self._whole is None:
            self._whole = time.perf_counter()


def compared(network: str, targets: Sequence[str], threads: int, folder: Path) -> Row:
    """Both searches of one network.

    Parameters
    ----------
    network : str
        Of the zoo, or a light model's with its prefix.
    targets : sequence of str
        As ``collage.optimize`` takes them.
    threads : int
        Of all kernels.
    folder : Path
        For logs and bundles.

    Returns
    -------
    dict
        ``contenders`` of the second search; ``ratio`` with ``low`` and ``high``, the first result's
        time over the second's, None where they are the same; seconds.
    """
    name = network.replace("/", "-").replace(":", "-")
    logs = [folder / f"{name}-{covers}.jsonl" for covers in (1, 3)]
    one = Timed(network, targets, logs[0], 1, threads)
    shutil.copy(logs[0], logs[1])
    three = Timed(network, targets, logs[1], 3, threads)
    same = one.result.partitioning.key() == three.result.partitioning.key()
    bundles = [
        collage.load(found.result.export(folder / f"{name}-{number}"))
        for number, found in enumerate(() if same else (one, three))
    ]
    ratio = _contest(bundles) if bundles else {"ratio": None, "low": None, "high": None}
    return {
        "network": network,
        "targets": list(targets),
        "threads": threads,
        "commit": commit(),
        "when": now(),
        "machine": machine(),
        "contenders": [_contender(row) for row in three.result.report.end_to_end],
        "chosen": [_chosen(found.result) for found in (one, three)],
        "added_sec": three.whole_sec - one.whole_sec,
        "search_sec": one.result.report.search.wall_sec,
        **ratio,
    }


def _contest(bundles: Sequence[Bundle]) -> Row:
    """The first over the second, in turns."""
    inputs = [[random_array(info, seed) for seed, info in enumerate(b.inputs)] for b in bundles]
    calls = [
        max(3, round(_ROUND_SEC / float(np.median(bundle.benchmark(3, 2, given)))))
        for bundle, given in zip(bundles, inputs, strict=True)
    ]
    table: list[list[float | None]] = [[], []]
    for number in range(_ROUNDS):
        for row in (0, 1) if number % 2 else (1, 0):
            seconds = bundles[row].benchmark(calls[row], 1, inputs[row])
            table[row].append(float(np.median(seconds)))
    first = paired_comparisons(table, [1, 0])
    if not first[1].is_chosen:
        ratio = first[1].ratio
        assert ratio is not None
        return {"ratio": 1 / ratio.estimate, "low": 1 / ratio.high, "high": 1 / ratio.low}
    ratio = first[0].ratio
    assert ratio is not None
    return {"ratio": ratio.estimate, "low": ratio.low, "high": ratio.high}


def _contender(row: EndToEnd) -> Row:
    return {
        "name": row.name,
        "whole_ms": 1e3 * row.median_sec if row.median_sec else None,
        "sum_ms": 1e3 * row.sum_sec if row.sum_sec and not row.sum_is_guessed else None,
        "ratio": row.ratio,
        "low": row.ratio_low,
        "high": row.ratio_high,
        "outcome": row.outcome,
    }


def _chosen(result: Result) -> str:
    return next(row.name for row in result.report.end_to_end if row.chosen)


def page(rows: Sequence[Row]) -> str:
    """The rows as Markdown.

    Parameters
    ----------
    rows : sequence of dict
        As :func:`compared` gives them.
    """
    lines = [
        "# Three covers instead of one",
        "",
        "`python -m benchmarks.further_covers ...`, float32, no budget. Both searches have the",
        "same times of candidates. `cover:2` and `cover:3`: what they took in the contest of",
        "whole models over what its winner took, with what they took over their sums in",
        "brackets. Gained: the time of the result with one cover over that of the result with",
        "three, median and interval over 16 rounds of their own; 1 where both are the same.",
        "",
        "| network | targets | threads | search: whole / sum | cover:2 | cover:3 | "
        "chosen of 1 | chosen of 3 | gained | added, s | load |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | --- | ---: | ---: | ---: |",
        *map(_line, rows),
        "",
        f"On {rows[0]['machine']['cpu']}, {rows[0]['machine']['cores']} cores." if rows else "",
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    by_name = {one["name"]: one for one in row["contenders"]}
    gained = "1"
    if row["ratio"] is not None:
        gained = f"{row['ratio']:.3f}"
        if row["low"] and row["high"]:
            gained += f" ({row['low']:.3f}–{row['high']:.3f})"
    cells = [
        row["network"],
        ", ".join(row["targets"]),
        str(row["threads"]),
        _error(by_name.get("search")),
        *(_cover(by_name.get(f"cover:{number}")) for number in (2, 3)),
        *row["chosen"],
        gained,
        f"{row['added_sec']:.0f}",
        row["machine"]["load_average_before"],
    ]
    return f"| {' | '.join(cells)} |"


def _error(one: Row | None) -> str:
    if one is None or not one["sum_ms"] or not one["whole_ms"]:
        return ""
    return f"{one['whole_ms'] / one['sum_ms']:.2f}"


def _cover(one: Row | None) -> str:
    if one is None:
        return "none"
    if not one["whole_ms"]:
        return "did not run"
    ratio = f"{one['ratio']:.2f}" if one["ratio"] else "1"
    return f"{ratio} ({_error(one)})"


def main(
    networks: Annotated[list[str], typer.Argument(help="names, or light:NAME")],
    target: Annotated[list[str], typer.Option("-t", help="repeatable")],
    threads: Annotated[int, typer.Option(help="of all kernels")] = 2,
    logs: Annotated[Path | None, typer.Option(help="folder that keeps logs")] = None,
) -> None:
    """Search networks twice and write the table."""
    place = RESULTS / "further_covers.json"
    rows: list[Row] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    for network in networks:
        with tempfile.TemporaryDirectory() as folder:
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
            row = compared(network, target, threads, logs or Path(folder))
        rows = [*(one for one in rows if one["network"] != network), row]
        place.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "further_covers.md").write_text(page(rows), encoding="utf-8")
        typer.echo(_line(row))


if __name__ == "__main__":
    typer.run(main)
