"""What a border between two backends takes on a CPU: ``python -m benchmarks.borders``.

A chain of equal products, each a partition of its own: once the two backends take turns, once each
has half of the chain. Both have the same operators in the same order and as many calls of each
backend, and nothing but the borders differs. So the difference, divided by how many more borders
there are, is what one takes beyond one between partitions of the same backend: the hand-over of
threads, tensors that are written by one and read by the other, and whatever else. Both are timed in
the same rounds, in one process. ``benchmarks/results/borders.md`` has a table for each number of
threads. On one thread (``taskset -c 0 python -m benchmarks.borders --threads 1``) the processor's
time counts, which a machine with other work leaves nearly alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tvm
import typer
from tvm import relax

from benchmarks.timing.machine import commit, machine
from collage.backends.contract import BuildContext, TargetSet
from collage.cost.contest.interval import Interval, median_interval
from collage.cost.processes.staging import compile_to_measure
from collage.passes import lower
from collage.pipeline import find_candidates, import_model, open_session
from collage.search import Candidate, make_partitioning
from collage.testing import graph

RESULTS = Path(__file__).parent / "results"
BACKENDS = ("tvm", "onednn", "openblas", "openvino", "onnxruntime")
LENGTH = 16
SIZES = (32, 128, 512)
"""Rows and columns: 4 KiB, 64 KiB and 1 MiB are handed over."""

_ROUNDS = 31
_ROUND_SEC = 0.03

_HEAD = f"""# Borders

`python -m benchmarks.borders`: a chain of {LENGTH} products, float32, each a partition; two
backends take turns, or each has half of it. What one border more takes, µs: median over {_ROUNDS}
rounds that both played, and its 95 % interval. In brackets what a partition takes, µs."""

Assignment = Callable[[int], int]
"""Which of two backends has which product."""


def network(size: int) -> tvm.IRModule:
    """The chain; values keep their scale."""
    draw = np.random.default_rng(0)
    weights = [
        relax.const((draw.normal(size=(size, size)) / size**0.5).astype("float32"))
        for _ in range(LENGTH)
    ]

    def build(emit, x):  # type: ignore[no-untyped-def]
        for weight in weights:
            x = emit(relax.op.matmul(x, weight))
        return x

    return graph([(size, size)], build)


def library(
    mod: tvm.IRModule,
    targets: TargetSet,
    context: BuildContext,
    pair: Sequence[str],
    assigned: Assignment,
    name: str,
) -> Callable[[int], float]:
    """One assignment compiled: seconds of a call, the median of so many.

    Parameters
    ----------
    mod : tvm.IRModule
        The chain.
    targets : TargetSet
        Both backends', and TVM's.
    context : BuildContext
        Where to compile.
    pair : sequence of str
        The backends.
    assigned : callable
        Which of them has which product.
    name : str
        Of the folder.

    Returns
    -------
    callable
        Given how many calls.
    """
    imported = import_model(mod, targets.device)
    found = find_candidates(imported.graph, targets).candidates
    by_place: dict[tuple[int, str], Candidate] = {}
    for one in found:
        by_place.setdefault((one.nodes, one.backend), one)
    chosen = [by_place[1 << n, pair[assigned(n)]] for n in range(LENGTH)]
    module = lower(imported.mod, imported.graph, make_partitioning(imported.graph, chosen))
    place = context.work_dir / name / "model.so"
    place.parent.mkdir(parents=True, exist_ok=True)
    built = compile_to_measure(module, tuple(targets), place, context)
    main = relax.VirtualMachine(tvm.runtime.load_module(str(built.path)), tvm.cpu())["main"]
    clock = time.process_time if context.num_threads == 1 else time.perf_counter
    size = int(mod["main"].params[0].ty.shape[0])
    x = tvm.runtime.tensor(np.random.default_rng(1).normal(size=(size, size)).astype("float32"))

    def seconds(calls: int) -> float:
        taken = []
        for _ in range(calls):
            begin = clock()
            main(x)
            taken.append(clock() - begin)
        return float(np.median(taken))

    seconds(3)
    return seconds


def border(pair: Sequence[str], size: int, threads: int) -> tuple[Interval, float]:
    """Seconds of one border more, and of one partition.

    Parameters
    ----------
    pair : sequence of str
        Two backends.
    size : int
        Of the products.
    threads : int
        Of all kernels.

    Returns
    -------
    tuple of (Interval, float)
        The interval holds the median with 95 %.
    """
    session = open_session(["llvm", *(one for one in pair if one != "tvm")], num_threads=threads)
    mod = network(size)
    names = "-".join((*pair, str(size)))
    build = (mod, session.targets, session.context, pair)
    turns = library(*build, lambda n: n % 2, f"{names}-turns")
    halves = library(*build, lambda n: int(n >= LENGTH // 2), f"{names}-halves")
    calls = max(5, round(_ROUND_SEC / halves(5)))
    differences, wholes = [], []
    for number in range(_ROUNDS):
        both = {}
        for key in (0, 1) if number % 2 else (1, 0):
            both[key] = (turns, halves)[key](calls)
        differences.append((both[0] - both[1]) / (LENGTH - 2))
        wholes.append(both[1] / LENGTH)
    return median_interval(differences, 0.95), float(np.median(wholes))


def main(
    backends: Annotated[list[str], typer.Argument(help="two or more")] = list(BACKENDS),  # noqa: B006
    threads: Annotated[int, typer.Option(help="of all kernels")] = 2,
) -> None:
    """Time all pairs and write the table."""
    here = machine()
    lines = [
        f"## {threads} thread{'s' if threads > 1 else ''}",
        "",
        f"`--threads {threads}`, commit {commit()[:7]}, {here['cpu']}, {here['cores']} cores, load "
        f"{here['load_average_before']}.",
        "",
        "| backends | 32x32, 4 KiB | 128x128, 64 KiB | 512x512, 1 MiB |",
        "| --- | ---: | ---: | ---: |",
    ]
    for pair in itertools.combinations(backends, 2):
        cells = []
        for size in SIZES:
            found, each_sec = border(pair, size, threads)
            middle, low, high = (1e6 * sec for sec in (found.estimate, found.low, found.high))
            cells.append(f"{middle:.1f} ({low:.1f} to {high:.1f}) [{1e6 * each_sec:.0f}]")
        lines.append(f"| {' | '.join([' and '.join(pair), *cells])} |")
        typer.echo(lines[-1])
        _write(lines)


def _write(lines: Sequence[str]) -> None:
    """This number of threads' table, beside those of others."""
    place = RESULTS / "borders.md"
    others = place.read_text(encoding="utf-8").split("\n## ")[1:] if place.exists() else []
    kept = [f"## {one.strip()}" for one in others if not lines[0].endswith(one.split("\n")[0])]
    sections = sorted([*kept, "\n".join(lines)])
    place.write_text("\n\n".join([_HEAD, *sections]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
