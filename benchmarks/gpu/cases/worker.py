"""The process that compiles cases, or runs them on a device: JSON requests, JSON answers.

Whoever compiles also evaluates the reference, so that a process with a GPU context does little else
than run kernels, and dies alone when one of them corrupts it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from benchmarks.gpu.cases import CudaCase, case_of
from benchmarks.gpu.cases.compiling import ARCH, compile_case, cuda_target
from benchmarks.gpu.cases.float64 import widen, widened
from benchmarks.timing.child import serve
from collage.backends.contract import BuildContext
from collage.backends.relax.static_shape import static_shape
from collage.backends.toolchain.children.child_boot import Line
from collage.cost.processes.staging import load_requirements
from collage.cost.workload.arrays import load_arrays, save_arrays

Array = NDArray[Any]
Answer = dict[str, Any]


def main(line: Line) -> None:
    """Answer requests until there are no more."""
    tasks = {"compile": compile_and_refer, "run": run_and_compare}
    serve(line, lambda request: tasks[request["do"]](request))


def device_target(kind: str, arch: str = "") -> tvm.target.Target:
    """``cpu`` stands for a rehearsal on a machine without a GPU."""
    return cuda_target(arch or ARCH) if kind == "cuda" else tvm.target.Target("llvm")


def compile_and_refer(request: Answer) -> Answer:
    """Compile a case; write inputs and what must come out for each seed.

    Parameters
    ----------
    request : dict
        ``family``, ``name``, ``device`` (``cuda`` or ``cpu``), ``folder``, ``cache_dir``,
        ``seeds``, ``options`` (attributes of targets by backend, where the case sets none).
    """
    begin = time.perf_counter()
    case = case_of(request["family"], request["name"])
    defaults = request.get("options", {}).get(case.backend, {})
    case = dataclasses.replace(case, options={**defaults, **case.options})
    folder = Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    context = BuildContext(Path(request["cache_dir"]), folder / "work")
    library = compile_case(case, device_target(request["device"], case.arch), folder, context)
    compile_sec = time.perf_counter() - begin
    begin = time.perf_counter()
    for seed in request["seeds"]:
        inputs = make_inputs(case, seed)
        expected = widened(case.module).run(inputs)
        if not all(np.isfinite(array).all() for array in expected):
            raise ValueError("the reference's output is not finite: the case proves nothing")
        save_arrays(folder / f"{seed}" / "inputs", inputs)
        save_arrays(folder / f"{seed}" / "expected", expected)
    return {
        "library": str(library.path),
        "required": [str(need.path) for need in library.required],
        "runtimes": dict(library.runtimes),
        "compile_sec": compile_sec,
        "reference_sec": time.perf_counter() - begin,
    }


def make_inputs(case: CudaCase, seed: int) -> list[Array]:
    """Normally distributed floats, integers that are 0 or 1."""
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for param in case.module["main"].params:
        shape = static_shape(param)
        dtype = np.dtype(str(param.ty.dtype))
        values = rng.integers(0, 2, shape) if dtype.kind in "biu" else rng.standard_normal(shape)
        arrays.append(np.asarray(values).astype(dtype))
    return arrays


def run_and_compare(request: Answer) -> Answer:
    """Run a compiled case on every seed's inputs, in turns, twice.

    Parameters
    ----------
    request : dict
        ``device``, ``folder``, ``seeds``, and the answer of :func:`compile_and_refer`.

    Returns
    -------
    dict
        ``error``-free runs give ``largest_error``, relative to the largest value of the output.
    """
    folder = Path(request["folder"])
    load_requirements(Path(request["library"]))
    device = tvm.device(request["device"], 0)
    machine = relax.VirtualMachine(tvm.runtime.load_module(request["library"]), device)
    worst = 0.0
    # Seeds in turns: an output that was not written would hold the other seed's values.
    for _ in range(2):
        for seed in request["seeds"]:
            inputs = load_arrays(folder / f"{seed}" / "inputs")
            expected = load_arrays(folder / f"{seed}" / "expected")
            result = machine["main"](*(tvm.runtime.tensor(a, device) for a in inputs))
            device.sync()
            worst = max(worst, largest_error([t.numpy() for t in _tensors(result)], expected))
    return {"largest_error": worst}


def _tensors(value: Any) -> list[tvm.runtime.Tensor]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value]
    return [leaf for item in value for leaf in _tensors(item)]


def largest_error(outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest difference, relative to the largest value of its output; NaN never passes."""
    shapes = [a.shape for a in outputs], [a.shape for a in expected]
    if shapes[0] != shapes[1]:
        raise ValueError(f"output shapes {shapes[0]} are not {shapes[1]}")
    worst = 0.0
    for got, wanted in zip(outputs, expected, strict=True):
        if wanted.dtype.kind in "biu":
            worst = max(worst, 0.0 if np.array_equal(got, wanted) else np.inf)
            continue
        wide = widen(got)
        if not np.isfinite(wide).all():
            raise ValueError(f"{np.sum(~np.isfinite(wide))} of {wide.size} values are not finite")
        if wanted.size > 1 and np.ptp(wanted) == 0:
            raise ValueError("a constant output proves nothing")
        worst = max(worst, float(np.abs(wide - wanted).max() / np.abs(wanted).max()))
    return worst
