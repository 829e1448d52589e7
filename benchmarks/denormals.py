"""What denormal numbers cost, and what flushing them is worth.

    python -m benchmarks.denormals [--rounds N] [--threads N] [--output FILE]

A stack of convolutions whose values fade from layer to layer until they are denormal, on each CPU
backend: with denormals flushed, with IEEE's, and with IEEE's on an input whose values stay normal.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.timing.machine import commit, machine, now
from benchmarks.timing.statistics import Spread
from collage.backends.compile import compile_module
from collage.backends.contract import BuildContext, ExternalBackend
from collage.backends.link import stage_libraries
from collage.targets import resolve_targets
from collage.testing.backend_cases import fuse
from collage.testing.graphs import Emit, constant, graph

ROOT = Path(__file__).resolve().parents[1]
SHAPE = (1, 64, 56, 56)
LAYERS = 12
FADING = 0.3
"""What one layer makes of the size of its input's values."""
BACKENDS = ("tvm", "onednn")
FLUSHED, IEEE, NORMAL = "flushed", "IEEE", "IEEE, normal values"
SCALES = {FLUSHED: 1e-36, IEEE: 1e-36, NORMAL: 1.0}


def network() -> tvm.IRModule:
    """Convolutions and rectifications; half of all values survive each."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        channels = SHAPE[1]
        for _ in range(LAYERS):
            weights = constant(channels, channels, 3, 3, scale=FADING / (3 * channels**0.5))
            x = emit(op.nn.relu(emit(op.nn.conv2d(x, weights, padding=(1, 1)))))
        return x

    return graph([SHAPE], body)


def compiled(backend: str, folder: Path, threads: int, *, ieee: bool) -> relax.VirtualMachine:
    """The network on one backend."""
    targets = resolve_targets(["llvm", *({backend} - {"tvm"})])
    mod = network()
    for target in targets:
        if isinstance(target.implementation, ExternalBackend):
            mod = fuse(target.implementation, target, mod)
    place = folder / f"{backend}-{ieee}"
    context = BuildContext(folder / "cache", place, threads, ieee_denormals=ieee)
    library = compile_module(mod, list(targets), place / "model.so", context)
    stage_libraries(library, copy=False)
    return relax.VirtualMachine(tvm.runtime.load_module(str(library.path)), tvm.cpu())


def measure(backend: str, folder: Path, threads: int, rounds: int) -> dict[str, Spread]:
    """Seconds per call of each way, taken in turns of random order."""
    values = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    machines = {ieee: compiled(backend, folder, threads, ieee=ieee) for ieee in (False, True)}

    def caller(way: str) -> Callable[[], object]:
        run, x = machines[way != FLUSHED]["main"], tvm.runtime.tensor(values * SCALES[way])
        return lambda: run(x)

    calls = {way: caller(way) for way in SCALES}
    seconds: dict[str, list[float]] = {way: [] for way in calls}
    order = random.Random(0)
    for number in range(rounds + 1):
        for way in order.sample(list(calls), len(calls)):
            begin = time.perf_counter()
            calls[way]()
            if number > 0:  # The first call packs weights.
                seconds[way].append(time.perf_counter() - begin)
    return {way: Spread.of(samples) for way, samples in seconds.items()}


def markdown(
    table: dict[str, dict[str, Spread]], threads: int, rounds: int, before: dict[str, str]
) -> str:
    """The page that is committed."""
    lines = [
        "# What denormal numbers cost",
        "",
        f"{LAYERS} convolutions of {SHAPE[1]} channels on {SHAPE[2]}x{SHAPE[3]} points, 3x3, each "
        "with a rectification; values fade from 1e-36 into the denormal numbers. Milliseconds, "
        f"median and quartiles of {rounds} calls in turns.",
        "",
        f"- Machine: {before['cpu']}, {before['cores']} cores, {before['system']}; load average "
        f"before the start {before['load_average_before']}",
        f"- {threads} threads; commit {commit() or 'unknown'}, {now()}",
        "- Made by `python -m benchmarks.denormals`",
        "",
        "| backend | " + " | ".join(SCALES) + " |",
        "| --- |" + " ---: |" * len(SCALES),
    ]
    for backend, ways in table.items():
        cells = [
            f"{s.median * 1e3:.1f} ({s.lower_quartile * 1e3:.1f} to {s.upper_quartile * 1e3:.1f})"
            for s in ways.values()
        ]
        lines.append(" | ".join([f"| `{backend}`", *cells]) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/denormals.md")
    arguments = parser.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        table = {
            backend: measure(backend, Path(folder), arguments.threads, arguments.rounds)
            for backend in BACKENDS
        }
    page = markdown(table, arguments.threads, arguments.rounds, before)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(page, encoding="utf-8")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
