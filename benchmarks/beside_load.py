"""How long a call takes beside other programs: ``python -m benchmarks.beside_load``.

A model is timed on each engine in turns, first alone, then beside programs that compute without
end. Writes ``benchmarks/results/beside_load.md``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import onnx

from benchmarks.engines import REFERENCE, Job
from benchmarks.engines.collage_engine import OneDnnEngine, TvmEngine
from benchmarks.engines.openvino_engine import OpenVinoEngine
from benchmarks.networks.models import light_model
from benchmarks.timing.machine import commit, machine, now
from benchmarks.timing.processes import EngineProcess, Turn
from benchmarks.timing.statistics import Spread

RESULTS = Path(__file__).parent / "results" / "beside_load.md"
_OURS = (OneDnnEngine.name, TvmEngine.name)
_BUSY = "while True: pass"
_PREPARE_SEC, _LOAD_SEC = 900.0, 300.0
_TURN = Turn(settle_sec=0.3, turn_sec=1.0, min_calls=8)

Row = tuple[str, str, list[Spread]]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="squeezenet,resnet50", help="of the onnx package's")
    parser.add_argument("--busy", default="0,2,8", help="programs beside, in turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    levels = [int(text) for text in args.busy.split(",")]
    facts = machine()
    rows = [
        row for name in args.models.split(",") for row in _model(name, levels, args.rounds, threads)
    ]
    args.output.write_text(_page(rows, levels, facts, args.rounds, threads))
    print(args.output.read_text())


def _model(name: str, levels: Sequence[int], rounds: int, threads: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="collage-beside-") as folder, ExitStack() as stack:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(light_model(name), path)
        job = Job(path, Path(folder), threads)
        engines: dict[str, EngineProcess] = {}
        for engine in (*_OURS, OpenVinoEngine.name, REFERENCE):
            process = stack.enter_context(EngineProcess(engine, job))
            process.prepare(_PREPARE_SEC)
            process.load(0, _LOAD_SEC)
            engines[engine] = process
        times: dict[str, list[list[float]]] = {label: [] for label in engines}
        for level in levels:
            with _busy(level):
                for label in engines:
                    times[label].append([])
                for _ in range(rounds):
                    for label, process in engines.items():
                        median = float(np.median(process.time(_TURN)))
                        times[label][-1].append(median)
                        print(f"{name} beside {level}: {label} {median * 1e3:.2f} ms", flush=True)
        for label, found in times.items():
            yield name, label, [Spread.of(seconds) for seconds in found]


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many programs that compute without end."""
    started = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _page(
    rows: Sequence[Row], levels: Sequence[int], facts: dict[str, str], rounds: int, threads: int
) -> str:
    beside = " | ".join("alone" if n == 0 else f"beside {n}" for n in levels)
    lines = [
        "# Beside other programs",
        "",
        "Milliseconds of a call, median and quartiles of the rounds' medians, while so many",
        "programs compute without end on the same cores. All engines take turns in each round, the",
        "others are stopped meanwhile.",
        "",
        f"| model | engine | {beside} |",
        f"| --- | --- | {' | '.join('---:' for _ in levels)} |",
    ]
    for name, label, spreads in rows:
        cells = [
            f"{s.median * 1e3:.2f} ({s.lower_quartile * 1e3:.2f}–{s.upper_quartile * 1e3:.2f})"
            for s in spreads
        ]
        lines.append(f"| {name} | {label} | {' | '.join(cells)} |")
    said = ", ".join(f"{key} {value}" for key, value in facts.items())
    lines += ["", f"{rounds} rounds, {threads} threads, commit {commit()}, {now()}; {said}.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
