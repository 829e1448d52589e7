"""Kernels one by one: microseconds, and the bandwidth or arithmetic that they reach.

    python -m benchmarks.gpu.kernels --out out [--match softmax] [--dtypes float16]
        [--backend cudnn --options '{"algorithm": "measured"}']

They are TVM's own, or those of a library where it takes the workload.

Each workload of ``cases/_tvm_shapes.py`` is compiled as a candidate is, in processes of their own,
and timed as one is: the cache flushed before each sample, its launch hidden. One line each, as it
is known, in ``kernels.jsonl`` too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.compiling import compile_case, cuda_target
from benchmarks.gpu.cases.tvm._shape import Shape
from benchmarks.gpu.cases.tvm._shapes import module_of, shapes
from benchmarks.gpu.cases.worker import make_inputs
from collage.backends.contract import BuildContext
from collage.cost.config import MeasureConfig
from collage.cost.processes.staging import load_requirements


@dataclass(frozen=True)
class Compiled:
    """A workload's library, and what it moves and computes.

    Attributes
    ----------
    bytes : int
        Of inputs, constants and outputs, each once.
    flops : float
        Multiplications and additions, where they decide.
    """

    name: str
    dtype: str
    library: Path
    bytes: int
    flops: float


def main() -> None:
    """Compile and time; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--match", default="", help="a regular expression for names")
    parser.add_argument("--dtypes", default="float16,bfloat16,float32")
    parser.add_argument("--backend", default="tvm", help="whose kernels")
    parser.add_argument("--options", type=json.loads, default={}, help="of its target, as JSON")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    from collage.cost.worker.cuda.session import CudaSession

    wanted = [
        (shape.name, dtype)
        for dtype in args.dtypes.split(",")
        for shape in shapes()
        if dtype in shape.dtypes and re.search(args.match, f"{shape.name}-{dtype}")
    ]
    session = CudaSession()
    with (args.out / "kernels.jsonl").open("w", encoding="utf-8") as page:
        whose = (args.backend, args.options)
        for compiled in _compiled(wanted, whose, args.out / "kernels", args.jobs):
            facts = compiled if isinstance(compiled, dict) else _timed(compiled, session)
            page.write(json.dumps(facts) + "\n")
            page.flush()
            print(line_of(facts), flush=True)


def line_of(facts: dict[str, Any]) -> str:
    """One workload's figures for people.

    Parameters
    ----------
    facts : dict
        As they stand in ``kernels.jsonl``.
    """
    head = f"{facts['name']:26s} {facts['dtype']:9s}"
    if "error" in facts:
        return f"{head} {facts['error'][:200]}"
    rates = f"{facts['usec']:9.2f} us {facts['gbytes_per_sec']:7.0f} GB/s"
    return f"{head}{rates} {facts['tflops']:7.2f} TFLOP/s"


def _compiled(
    wanted: list[tuple[str, str]], whose: tuple[str, dict[str, Any]], folder: Path, jobs: int
) -> Iterator[Compiled | dict[str, Any]]:
    # Not forked: a process with a GPU's context is no parent for others.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        tasks = {pool.submit(compile_shape, *one, folder, *whose): one for one in wanted}
        for task in as_completed(tasks):
            name, dtype = tasks[task]
            try:
                yield task.result()
            except Exception as err:  # noqa: BLE001 - one workload's failure is a line of the table
                yield {"name": name, "dtype": dtype, "error": f"{type(err).__name__}: {err}"}


def compile_shape(
    name: str, dtype: str, folder: Path, backend: str = "tvm", options: dict[str, Any] | None = None
) -> Compiled:
    """Compile one workload.

    Parameters
    ----------
    name, dtype : str
        Of ``cases/_tvm_shapes.py``.
    folder : Path
        For libraries and what is kept.
    backend : str
        Whose kernel; TVM's does what it does not take.
    options : dict, optional
        Of the backend's target.
    """
    shape: Shape = next(shape for shape in shapes() if shape.name == name)
    case = CudaCase(f"{name}-{dtype}", backend, "", module_of(shape, dtype), options or {})
    place = folder / case.name
    place.mkdir(parents=True, exist_ok=True)
    context = BuildContext(folder / "cache", place / "work")
    library = compile_case(case, cuda_target(), place, context)
    moved = _bytes_of(case.module)
    return Compiled(name, dtype, Path(library.path), moved, shape.flops)


def _bytes_of(mod: tvm.IRModule) -> int:
    """Of inputs, constants and outputs."""
    func = mod["main"]
    leaves = [param.ty for param in func.params]
    returned = func.ret_ty
    leaves += list(returned.fields) if isinstance(returned, relax.TupleType) else [returned]

    def note(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GenericConst):
            leaves.append(expr.ty)

    relax.analysis.post_order_visit(func, note)
    return sum(
        int(np.prod([int(d) for d in leaf.shape], dtype=np.int64))
        * (tvm.DataType(str(leaf.dtype)).bits // 8)
        for leaf in leaves
    )


def _timed(compiled: Compiled, session: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": compiled.name, "dtype": compiled.dtype}
    try:
        load_requirements(compiled.library)
        device = tvm.cuda(0)
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(compiled.library)), device)
        shape = next(shape for shape in shapes() if shape.name == compiled.name)
        case = CudaCase("", "tvm", "", module_of(shape, compiled.dtype))
        machine.set_input("main", *session.upload(make_inputs(case, 0)))
        session.settle(machine)
        samples = session.sample(machine, MeasureConfig())
    except Exception as err:  # noqa: BLE001 - one workload's failure is a line of the table
        return {**facts, "error": f"{type(err).__name__}: {err}"}
    seconds = median(samples)
    return {
        **facts,
        "usec": round(1e6 * seconds, 3),
        "gbytes_per_sec": round(1e-9 * compiled.bytes / seconds, 1),
        "tflops": round(1e-12 * compiled.flops / seconds, 3),
        "samples": len(samples),
    }


if __name__ == "__main__":
    main()
