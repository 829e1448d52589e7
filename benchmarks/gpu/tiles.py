"""TVM's products on tensor cores by tile, parts of sums, and stages that operands come ahead.

    python -m benchmarks.gpu.tiles --out out [--match channels] [--budget 300]

What ``tensor_core.choose_tile`` and ``split_sums.choose_parts`` choose is held against what else
they could have chosen: few tiles with long sums, few columns. Compiled in processes of their own,
timed as candidates are. A line each in ``tiles.jsonl``, a table in ``tiles.md``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import median
from typing import Any

import tvm
from tvm import relax

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.compiling import compile_case, cuda_target
from benchmarks.gpu.cases.cudnn._graphs import convolution, product
from benchmarks.gpu.cases.worker import make_inputs
from collage.backends.contract import BuildContext
from collage.backends.tvm.cuda.schedules import split_sums, tensor_core
from collage.backends.tvm.cuda.schedules.tiles import NARROW, TILES, Tile
from collage.cost.config import MeasureConfig
from collage.cost.processes.staging import load_requirements

_SMS = 132
_CHOSEN, _ONE_AHEAD = "chosen", "one stage ahead"
_PARTS = (2, 3, 6, 9, 18)
_AS_IT_IS = {
    name: getattr(tensor_core, name) for name in ("choose_tile", "choose_parts", "stages_ahead")
}

CONVOLUTIONS: dict[str, tuple[Sequence[int], Sequence[int], dict[str, Any]]] = {
    # Few tiles with long sums.
    "304_to_152_at_14": ((1, 304, 14, 14), (152, 3, 3), {"padding": 1}),
    "1024_to_1280_at_4": ((1, 1024, 4, 4), (1280, 3, 3), {"padding": 1}),
    "512_to_512_at_7": ((1, 512, 7, 7), (512, 3, 3), {"padding": 1}),
    "256_to_256_at_14": ((1, 256, 14, 14), (256, 3, 3), {"padding": 1}),
    "128_to_128_at_28": ((1, 128, 28, 28), (128, 3, 3), {"padding": 1}),
    "128_to_32_at_14": ((1, 128, 14, 14), (32, 3, 3), {"padding": 1}),
    "2048_to_512_at_7": ((1, 2048, 7, 7), (512, 1, 1), {}),
    "1024_to_256_at_14": ((1, 1024, 14, 14), (256, 1, 1), {}),
    "volume_256_at_7": ((1, 256, 4, 7, 7), (256, 3, 3, 3), {"padding": 1}),
    # Few columns.
    "volume_32_to_2": ((1, 32, 32, 64, 64), (2, 5, 5, 5), {"padding": 2}),
    "64_to_2_at_128": ((1, 64, 128, 128), (2, 3, 3), {"padding": 1}),
    "64_to_3_at_128": ((1, 64, 128, 128), (3, 3, 3), {"padding": 1}),
    "16_to_1_at_224": ((1, 16, 224, 224), (1, 3, 3), {"padding": 1}),
    "32_to_4_at_64": ((1, 32, 64, 64), (4, 1, 1), {}),
    "64_to_12_at_96": ((1, 64, 96, 96), (12, 3, 3), {"padding": 1}),
    "64_to_16_at_56": ((1, 64, 56, 56), (16, 1, 1), {}),
}
PRODUCTS = {
    "rows_226_up": ((226, 384), (384, 1536)),
    "rows_226_down": ((226, 1536), (1536, 384)),
    "rows_226_across": ((226, 384), (384, 384)),
    "rows_50_down": ((50, 3072), (3072, 768)),
    "rows_197_down": ((197, 3072), (3072, 768)),
    "rows_128_across": ((128, 768), (768, 768)),
    "rows_4096_to_4": ((4096, 512), (512, 4)),
}
"""Data and filters or weights, then attributes."""


def module_of(name: str) -> tvm.IRModule:
    """The problem with bias and ReLU, in float16.

    Parameters
    ----------
    name : str
        Of :data:`CONVOLUTIONS` or :data:`PRODUCTS`.
    """
    if name in PRODUCTS:
        return product(*PRODUCTS[name], ("bias", "relu"), "float16")
    data, filters, attrs = CONVOLUTIONS[name]
    return convolution(data, filters, ("bias", "relu"), "float16", **attrs)


def extents_of(name: str) -> tuple[int, int, tuple[int, ...]]:
    """Rows and columns of the result, and what is summed over.

    Parameters
    ----------
    name : str
        Of :data:`CONVOLUTIONS` or :data:`PRODUCTS`.
    """
    if name in PRODUCTS:
        (rows, depth), (_, columns) = PRODUCTS[name]
        return rows, columns, (depth,)
    (_, channels, *space), (columns, *window), _ = CONVOLUTIONS[name]
    return math.prod(space), columns, (*window, channels)


def choices(name: str) -> list[tuple[Tile, tuple[int, ...]]]:
    """Tiles and parts that are worth a measurement: one way to cut for each number of parts.

    Parameters
    ----------
    name : str
        Of :data:`CONVOLUTIONS` or :data:`PRODUCTS`.
    """
    rows, columns, terms = extents_of(name)
    found = []
    for tile in TILES + NARROW:
        narrow = tile in NARROW and columns > 16
        if narrow or tile.columns >= 2 * max(columns, 16) or tile.rows >= 4 * max(rows, 16):
            continue
        blocks = tile.blocks(1, rows, columns)
        counts: dict[int, tuple[int, ...]] = {}
        for cut in split_sums.cuts(terms):
            counts.setdefault(math.prod(cut), cut)
        for count, cut in sorted(counts.items()):
            enough = math.prod(terms) // count >= 2 * 16 * tile.depth
            if count == 1 or (enough and blocks * count <= 4 * _SMS and count in _PARTS):
                found.append((tile, cut))
    return found


def compile_choice(
    name: str, tile: Tile | None, cut: tuple[int, ...] | None, place: Path, *, ahead: bool = True
) -> Path:
    """Compile a problem, in a process of its own.

    Parameters
    ----------
    name : str
        Of the problem.
    tile, cut
        What is to be chosen; None for what the schedule chooses.
    place : Path
        For what is compiled.
    ahead : bool
        Whether operands may be copied several stages ahead.
    """
    chosen: dict[str, Any] = dict(_AS_IT_IS)
    if tile is not None:
        chosen.update(choose_tile=lambda *_: tile, choose_parts=lambda *_: cut)
    if not ahead:
        chosen["stages_ahead"] = lambda *_: 0
    for what, function in chosen.items():
        setattr(tensor_core, what, function)
    place.mkdir(parents=True, exist_ok=True)
    case = CudaCase(name, "tvm", "", module_of(name))
    context = BuildContext(place / "cache", place / "work")
    return Path(compile_case(case, cuda_target(), place, context).path)


def main() -> None:
    """Compile and time; write a line for each choice and a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--match", default="", help="a regular expression for problems")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with (args.out / "tiles.jsonl").open("w", encoding="utf-8") as page:
        for facts in _timed(args):
            rows.append(facts)
            page.write(json.dumps(facts) + "\n")
            page.flush()
            print(facts, flush=True)
    (args.out / "tiles.md").write_text(table_of(rows), encoding="utf-8")


def _timed(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from collage.cost.worker.cuda.session import CudaSession

    end = time.monotonic() + args.budget
    tasks: dict[Any, dict[str, Any]] = {}
    # Not forked: a process with a GPU's context is no parent for others.
    spawn = multiprocessing.get_context("spawn")
    names = [name for name in (*CONVOLUTIONS, *PRODUCTS) if re.search(args.match, name)]
    with ProcessPoolExecutor(args.jobs, mp_context=spawn) as pool:

        def submit(name: str, what: str, tile: Tile | None, cut: Any, *, ahead: bool) -> None:
            place = args.out / "tiles" / name / what.replace("/", "_in_")
            task = pool.submit(compile_choice, name, tile, cut, place, ahead=ahead)
            blocks = None if tile is None else tile.blocks(1, *extents_of(name)[:2])
            tasks[task] = {"name": name, "what": what, "blocks": blocks, "cut": cut}

        for name in names:
            submit(name, _CHOSEN, None, None, ahead=True)
            submit(name, _ONE_AHEAD, None, None, ahead=False)
        # All problems in turns, so that none is without a figure when time is out.
        for turn in itertools.zip_longest(*([(n, *one) for one in choices(n)] for n in names)):
            for name, tile, cut in filter(None, turn):
                what = f"{tile.rows}x{tile.columns}x{16 * tile.depth}/{math.prod(cut)}"
                submit(name, what, tile, cut, ahead=True)
        session = CudaSession()
        try:
            for task in as_completed(tasks, timeout=max(1.0, end - time.monotonic())):
                facts = tasks[task]
                try:
                    yield {**facts, "usec": _microseconds(task.result(), facts["name"], session)}
                except Exception as err:  # noqa: BLE001 - one failure is a line of the table
                    yield {**facts, "error": f"{type(err).__name__}: {err}"[:300]}
        except TimeoutError:
            print("out of time", flush=True)
            pool.shutdown(wait=False, cancel_futures=True)


def _microseconds(library: Path, name: str, session: Any) -> float:
    load_requirements(library)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cuda(0))
    inputs = make_inputs(CudaCase("", "tvm", "", module_of(name)), 0)
    machine.set_input("main", *session.upload(inputs))
    session.settle(machine)
    samples: list[float] = session.sample(machine, MeasureConfig())
    return round(1e6 * median(samples), 2)


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """What is chosen beside what else there is.

    Parameters
    ----------
    rows : sequence of dict
        Lines of ``tiles.jsonl``.
    """
    lines = [
        "| problem | rows, columns, terms | chosen us | one stage ahead | best | which "
        "| best in one part |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for name in dict.fromkeys(row["name"] for row in rows):
        mine = {r["what"]: r["usec"] for r in rows if r["name"] == name and "usec" in r}
        own = {what: usec for what, usec in mine.items() if "/" in what}
        best = min(own, key=lambda what: own[what], default="")
        whole = min((usec for what, usec in own.items() if what.endswith("/1")), default="")
        height, width, terms = extents_of(name)
        cells = [name, f"{height}, {width}, {math.prod(terms)}", mine.get(_CHOSEN, "")]
        cells += [mine.get(_ONE_AHEAD, ""), own.get(best, ""), best, whole]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
