"""Compiles cases of the cuBLAS backend and calls their entry points on the host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import get_backend
from collage.backends.cublas.backend import CublasBackend
from collage.backends.cublas.library import find_installation
from collage.backends.link import CompiledLibrary
from collage.backends.relax.modules.lift_constants import lift_constants
from collage.backends.toolchain import compiling
from collage.backends.toolchain.cuda_toolkit import find_toolkit
from collage.passes import align_weights
from collage.testing.backend_cases import PatternCase, partition

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Call:
    """How ``main`` of one case calls its only partition."""

    symbol: str
    params: list[relax.Var]
    arguments: list[relax.Expr]
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Library:
    """Cases compiled into one library, and the calls that their functions make."""

    linked: CompiledLibrary
    calls: list[Call]
    cases: list[CudaCase]

    @property
    def path(self) -> Path:
        return self.linked.path


def compile_stand_in(folder: Path) -> Path:
    """The library that takes cublasLt's place and the CUDA runtime's."""
    output = folder / "stand_in.so"
    include = find_installation().include
    flags = ["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    folders = [f"-I{include}", f"-I{find_toolkit().include}"]
    names = ["-fvisibility=hidden", "-Wl,-soname,libcublasLt.so.13", "-o", str(output)]
    source = Path(__file__).with_name("cublas_on_host.cc")
    compiling.run_tool(["g++", *flags, *folders, *names, str(source)])
    return output


def compile_all(folder: Path, chosen: Sequence[CudaCase], cache: Path, **options: Any) -> Library:
    """One library of the cases, as functions ``case0``, ``case1``, …."""
    backend = get_backend("cublas")
    assert isinstance(backend, CublasBackend)
    target = BackendTarget("cublas", cuda_target(), backend.parse_options(options))
    context = BuildContext(cache, folder / "work", num_threads=1)
    patterns = [PatternCase(case.pattern, case.module) for case in chosen]
    mod = lift_constants(aligned(partition(backend, target, patterns)), {"cublas"})
    calls = [call_of(mod, f"case{index}") for index in range(len(chosen))]
    linked = compile_module(mod, [target], folder / "model.so", context)
    return Library(linked, calls, list(chosen))


def aligned(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the weights of its partition functions as a search hands them over."""
    changed = {
        gvar: align_weights(func) if func.attrs is not None and "Codegen" in func.attrs else func
        for gvar, func in mod.functions.items()
    }
    return relax.transform.Normalize()(tvm.IRModule(changed))


def call_of(mod: tvm.IRModule, name: str) -> Call:
    """The only call of a partition in a function."""
    function = mod[name]
    (binding,) = [
        b
        for block in function.body.blocks
        for b in block.bindings
        if isinstance(b.value, relax.Call) and isinstance(b.value.op, tvm.ir.GlobalVar)
    ]
    callee = mod[binding.value.op.name_hint]
    symbol = str(callee.attrs["global_symbol"])
    shape = tuple(int(extent) for extent in binding.var.ty.shape)
    dtype = str(binding.var.ty.dtype)
    return Call(symbol, list(function.params), list(binding.value.args), shape, dtype)


def inputs_of(case: CudaCase, seed: int) -> list[Array]:
    """Random inputs of a case's ``main``."""
    return PatternCase(case.pattern, case.module).inputs(np.random.default_rng(seed))


def call_request(
    folder: Path, call: Call, inputs: Sequence[Array], shift: int = 0, **more: Any
) -> dict[str, Any]:
    """What the process that calls entry points is asked; ``shift`` misaligns the inputs."""
    folder.mkdir(parents=True)
    items = []
    for index, argument in enumerate(call.arguments):
        if isinstance(argument, relax.Var):
            value = inputs[[p.same_as(argument) for p in call.params].index(True)]
        else:
            value = argument.value.numpy()
        file = folder / f"{index}.bin"
        file.write_bytes(np.ascontiguousarray(value).tobytes())
        dtype = value.dtype.name
        items.append({"shape": value.shape, "dtype": dtype, "file": str(file), "shift": shift})
    output = {"shape": call.shape, "dtype": call.dtype, "file": str(folder / "out.bin")}
    return {"symbol": call.symbol, "inputs": items, "output": output, **more}


_WITHOUT_PYTORCH = """
import runpy, sys
sys.modules["torch"] = None
runpy.run_module("tests.backends_tests.cublas.on_host", run_name="__main__")
"""
"""TVM imports it wherever it is, and one for GPUs loads the libraries whose place is taken."""


def serve(stand_in: Path | None, library: Path, folder: Path, request: Mapping[str, Any]) -> Any:
    """The answer of a process of its own; NVIDIA's libraries are used without a stand-in."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "requests.json"
    file.write_text(json.dumps(request))
    command = [sys.executable, "-c", _WITHOUT_PYTORCH]
    done = subprocess.run(
        [*command, "-" if stand_in is None else str(stand_in), str(library), str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        # The device's lock lies there: others on this machine do not count.
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def output_of(asked: Mapping[str, Any]) -> Array:
    """What an entry point wrote."""
    output = asked["output"]
    dtype = np.dtype(output["dtype"])
    return np.frombuffer(Path(output["file"]).read_bytes(), dtype).reshape(output["shape"])
