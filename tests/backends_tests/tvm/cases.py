"""Builds one native partition, runs it, and looks at the loops that its kernels became."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from collage.backends import devices
from collage.backends.compile import compile_module
from collage.backends.contract import PARTITION_ATTR, BackendTarget, BuildContext
from collage.backends.link import stage_libraries
from collage.backends.tvm.backend import TVMBackend, TVMOptions
from collage.backends.tvm.cpu.schedules import SCHEDULE_ATTR
from collage.targets import resolve_targets

Body = Callable[..., relax.Expr]
CPU = devices.CPU.complete({"kind": "llvm"})


def tvm_target(schedule: str = "default", device: dict[str, str] | None = None) -> BackendTarget:
    """The target ``tvm`` for this machine, or for the one given."""
    return BackendTarget("tvm", tvm.target.Target(device or CPU), TVMOptions(schedule))


def partition(body: Body, inputs: Sequence[np.ndarray]) -> tvm.IRModule:
    """A module whose ``main`` calls one partition function of this backend.

    Parameters
    ----------
    body : callable
        Gets an ``emit`` function and one variable per input; returns the result.
    """
    builder = relax.BlockBuilder()
    types = [relax.TensorType(array.shape, str(array.dtype)) for array in inputs]
    params = [relax.Var(f"p{i}", ty) for i, ty in enumerate(types)]
    attrs = {PARTITION_ATTR: "tvm"}
    with builder.function("partition", params, attrs=attrs, private=True):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, *params))
        callee = builder.emit_func_output(result)
    arguments = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types)]
    with builder.function("main", arguments):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.Call(callee, arguments)))
        builder.emit_func_output(result)
    return builder.get()


def run(
    mod: tvm.IRModule,
    inputs: Sequence[np.ndarray],
    context: BuildContext,
    device: str = "cpu",
    schedule: str = "default",
) -> list[np.ndarray]:
    """Compile, link, load and run a module on a device of this machine; its outputs, in order."""
    native = tvm_target(schedule)
    if device == "cuda":
        native = resolve_targets(["cuda", {"kind": "tvm", "schedule": schedule}]).native
    library = compile_module(mod, [native], context.work_dir / "model.so", context)
    stage_libraries(library, copy=False)
    place = tvm.device(device, 0)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library.path)), place)
    result = machine["main"](*(tvm.runtime.tensor(array, place) for array in inputs))
    return [t.numpy() for t in result] if not hasattr(result, "numpy") else [result.numpy()]


def for_example(context: BuildContext, num_threads: int | None = None) -> BuildContext:
    """With a folder for one example: a library that was loaded stays what it is at its path."""
    context.work_dir.mkdir(parents=True, exist_ok=True)
    return dataclasses.replace(
        context,
        work_dir=Path(tempfile.mkdtemp(dir=context.work_dir)),
        num_threads=context.num_threads if num_threads is None else num_threads,
    )


def kernels(
    mod: tvm.IRModule, context: BuildContext, target: BackendTarget | None = None
) -> dict[str, tirx.PrimFunc]:
    """The scheduled kernels of a module, by name."""
    lowered = TVMBackend().lower(mod, target or tvm_target(), context)
    return {
        gv.name_hint: func
        for gv, func in lowered.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }


def families(functions: dict[str, tirx.PrimFunc]) -> list[str]:
    """Which schedule family took each kernel."""
    return [str(func.attrs[SCHEDULE_ATTR]).split(";")[0] for func in functions.values()]


def loop_kinds(func: tirx.PrimFunc) -> set[int]:
    """Kinds of the loops in a kernel (``tirx.ForKind``)."""
    kinds: set[int] = set()

    def note(loop: tirx.For) -> Any:
        kinds.add(int(loop.kind))

    tvm_ffi.structural_walk(func.body, [(tirx.For, note)])
    return kinds


def assert_close(got: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-5) -> None:
    """Equal within ``tolerance`` of the largest value wanted."""
    assert got.shape == wanted.shape
    scale = max(float(np.abs(wanted).max()), 1e-6)
    assert float(np.abs(got - wanted).max()) <= tolerance * scale
