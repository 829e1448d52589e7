"""What it costs when backends alternate: a program of three backends against its parts.

    python -m benchmarks.thread_pool [--rounds N] [--threads N] [--output FILE]

Each layer of the program is a matrix product on OpenBLAS, an elementwise operator on TVM, a matrix
product on oneDNN and another elementwise operator on TVM. The parts are the same operators, all of
one backend in one program. With every backend on one thread pool, alternating costs no more than
the parts; with TVM on its own pool, the two pools spin against each other. Exits with 1 when
the ratio on one pool is not below the limit.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.thread_pool.worker import WIDTH
from benchmarks.timing.child import JsonChild
from benchmarks.timing.machine import commit, machine, now
from benchmarks.timing.statistics import Spread
from collage.backends.compile import build_executable, codegen_names
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.devices import CPU
from collage.backends.link import link, stage_libraries
from collage.passes import lower
from collage.search.candidates import Candidate, Composite
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import make_partitioning

ROOT = Path(__file__).resolve().parents[2]
RATIO_LIMIT = 1.15
"""The alternating program must take less than this many times the sum of its parts."""
LAYERS = 4
LAYER = ("openblas", "tvm", "onednn", "tvm")
ROWS = (32, 64, 128)
_WORKER = "benchmarks.thread_pool.worker"
_LIMIT_SEC = 300.0


@dataclass
class Program:
    """A compiled program in a process of its own, stopped while it is not its turn."""

    name: str
    library: Path
    seconds: list[float] = field(default_factory=list)
    """Mean seconds per call, one per round."""

    def start(self, rows: int, threads: int) -> None:
        environment = {"TVM_NUM_THREADS": str(threads)}
        log = self.library.with_name("stderr.txt")
        self.child = JsonChild(_WORKER, [str(self.library), str(rows)], log, environment)
        self.child.ask({"do": "load"}, _LIMIT_SEC)
        self.child.suspend()

    def take_turn(self) -> None:
        self.child.resume()
        self.seconds.append(self.child.ask({"do": "time"}, _LIMIT_SEC)["mean_sec"])
        self.child.suspend()

    def stop(self) -> None:
        self.child.close()


@dataclass(frozen=True)
class Row:
    """One line of the table: spreads over the rounds."""

    rows: int
    one_pool: Spread
    two_pools: Spread
    parts_sec: dict[str, float]


def targets() -> dict[str, BackendTarget]:
    """The three backends, on the device that TVM sees here."""
    device = tvm.target.Target(CPU.complete({"kind": "llvm"}))
    names = ("tvm", "openblas", "onednn")
    return {n: BackendTarget.of(n, device) for n in names}


def program(steps: Sequence[str], rows: int) -> tvm.IRModule:
    """A chain of matrix products and elementwise operators, a partition each.

    Parameters
    ----------
    steps : sequence of str
        The backend of each operator: TVM runs ``tanh``, the others a matrix product.
    rows : int
        Of the activations, (rows, WIDTH) float32.
    """
    # One matrix for all products: with one each, the whole program would not fit into a cache that
    # each of its parts fits into, and the ratio would tell about caches.
    weights = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32) * WIDTH**-0.5
    x = relax.Var("x", relax.TensorType((rows, WIDTH), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for backend in steps:
                y = builder.emit(
                    op.tanh(y) if backend == "tvm" else op.matmul(y, relax.const(weights))
                )
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    mod = builder.get()
    graph = DataflowGraph.from_function(mod["main"])
    of = targets()
    candidates = [
        Candidate(
            nodes=1 << index,
            target=of[backend],
            composites=() if backend == "tvm" else (Composite(f"{backend}.matmul", 1 << index),),
        )
        for index, backend in enumerate(steps)
    ]
    identity = [Candidate(1 << i, of["tvm"], inline=True) for i in range(len(steps), len(graph))]
    return lower(mod, graph, make_partitioning(graph, [*candidates, *identity]))


def build(
    name: str, steps: Sequence[str], rows: int, context: BuildContext, *, one_pool: bool
) -> Program:
    """Compile a program into a folder of its own."""
    mod, of = program(steps, rows), targets()
    used = [of[backend] for backend in sorted(codegen_names(mod))]
    executable = build_executable(mod, list(of.values()), context)
    output = context.work_dir / f"{name}-{rows}" / "model.so"
    library = link(executable, used, output, context, one_pool=one_pool)
    stage_libraries(library, copy=False)
    return Program(name, library.path)


def measure(rows: int, threads: int, rounds: int, folder: Path) -> Row:
    """Build and time all programs of one size, in turns of random order."""
    context = BuildContext(folder / "cache", folder / "work", num_threads=threads)
    steps = LAYER * LAYERS
    tvm_steps = [step for step in steps if step == "tvm"]
    programs = {
        "alternating": build("alternating", steps, rows, context, one_pool=True),
        "alternating, two pools": build("two_pools", steps, rows, context, one_pool=False),
        "tvm": build("tvm", tvm_steps, rows, context, one_pool=True),
        "tvm, own pool": build("tvm_own", tvm_steps, rows, context, one_pool=False),
    }
    for library in ("openblas", "onednn"):
        own = [step for step in steps if step == library]
        programs[library] = build(library, own, rows, context, one_pool=True)
    order = random.Random(0)
    started: list[Program] = []
    try:
        for each in programs.values():
            each.start(rows, threads)
            started.append(each)
        for _ in range(rounds):
            for each in order.sample(started, len(started)):
                each.take_turn()
    finally:
        for each in started:
            each.stop()
    return Row(
        rows,
        _ratios(programs, "alternating", "tvm"),
        _ratios(programs, "alternating, two pools", "tvm, own pool"),
        {name: statistics.median(p.seconds) for name, p in programs.items()},
    )


def _ratios(programs: dict[str, Program], whole: str, tvm_part: str) -> Spread:
    parts = [programs[name].seconds for name in (tvm_part, "openblas", "onednn")]
    sums = [sum(together) for together in zip(*parts, strict=True)]
    return Spread.of([a / b for a, b in zip(programs[whole].seconds, sums, strict=True)])


def markdown(table: Sequence[Row], threads: int, rounds: int, before: dict[str, str]) -> str:
    """The page that is committed."""
    parts = list(table[0].parts_sec)
    layer = ", ".join(LAYER)
    lines = [
        "# Backends that alternate, on one thread pool and on two",
        "",
        f"A program of {LAYERS} layers ({layer}; products of (rows, {WIDTH}) with one ({WIDTH}, "
        f"{WIDTH}) matrix, tanh) against the sum of its parts: the same operators, one program per "
        "backend. **On one pool the ratio must stay below "
        f"{RATIO_LIMIT}.** Median and quartiles over {rounds} rounds of the ratio within a round; "
        "each program is a process, stopped when it is not its turn.",
        "",
        f"- Machine: {before['cpu']}, {before['cores']} cores, {before['system']}; load average "
        f"before the start {before['load_average_before']}",
        f"- {threads} threads; commit {commit() or 'unknown'}, {now()}",
        "- Made by `python -m benchmarks.thread_pool`",
        "",
        "| rows | one pool | quartiles | TVM on its own pool | quartiles |",
        "| ---: | ---: | :---: | ---: | :---: |",
    ]
    for row in table:
        cells = [str(row.rows)]
        for ratio in (row.one_pool, row.two_pools):
            cells += [f"{ratio.median:.3f}"]
            cells += [f"{ratio.lower_quartile:.3f} to {ratio.upper_quartile:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Medians in microseconds per call:", ""]
    lines += ["| rows | " + " | ".join(parts) + " |", "| ---: |" + " ---: |" * len(parts)]
    for row in table:
        times = [f"{row.parts_sec[name] * 1e6:.0f}" for name in parts]
        lines.append("| " + " | ".join([str(row.rows), *times]) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/thread_pool.md")
    arguments = parser.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        table = []
        for rows in ROWS:
            table.append(measure(rows, arguments.threads, arguments.rounds, Path(folder)))
            one, two = table[-1].one_pool, table[-1].two_pools
            print(f"{rows} rows: one pool {one.median:.3f}, two pools {two.median:.3f}", flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    page = markdown(table, arguments.threads, arguments.rounds, before)
    arguments.output.write_text(page, encoding="utf-8")
    print(page)
    return 0 if all(row.one_pool.median < RATIO_LIMIT for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
