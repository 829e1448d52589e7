"""The norm kernels' source, run on the CPU under a model of CUDA's threads, against float64."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.cutlass.norm import RTOL, norm
from collage.backends.cutlass.families.norm.family import (
    NormConfiguration,
    NormFamily,
    row_configurations,
)
from collage.backends.cutlass.library import TEMPLATES
from collage.backends.toolchain.cuda_toolkit import find_toolkit
from tests.backends_tests.cuda_on_host import HEADER
from tests.backends_tests.cutlass.reading import Whole, read_whole

pytestmark = pytest.mark.cuda

_PRELUDE = "#define __shared__ static\n"
_LAUNCH = re.compile(
    r"normalize<<<blocks, dim3\(kThreads, kRows\), 0, call->stream>>>\((.*?)\);", re.S
)
_HOST_LAUNCH = r"""
  const int grid[] = {static_cast<int>(blocks), 1, 1}, threads[] = {kThreads, kRows, 1};
  cuda_on_host::launch(grid, threads, [&] { normalize(\1); });"""


class _Call(ctypes.Structure):
    """``collage_cutlass_call``."""

    _fields_ = (
        ("device", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("scalars", ctypes.POINTER(ctypes.c_float)),
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("output", ctypes.c_void_p),
    )


def run(whole: Whole, made: NormConfiguration, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel computes of random operands, and what it should."""
    spec = whole.partition.spec
    text = NormFamily().render(spec, made).text.replace("#include <cuda_runtime.h>", "")
    text, launches = _LAUNCH.subn(_HOST_LAUNCH, text)
    assert launches == 1
    text = text.replace("static_cast<int>(cudaGetLastError())", "0")
    names = "#define COLLAGE_KERNEL kernel\n#define COLLAGE_KERNEL_WORKSPACE kernel_workspace\n"
    program, library = folder / "norm.cc", folder / "norm.so"
    program.write_text(f'#include "{HEADER}"\n{_PRELUDE}{names}{text}', encoding="utf-8")
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{TEMPLATES}"]
    command += [f"-I{find_toolkit().include}", "-o", str(library), str(program)]
    subprocess.run(command, check=True)
    given, expected = whole.operands()
    arrays = [np.ascontiguousarray(array, spec.dtype) for array in given]
    result = np.full(spec.output.shape, np.nan, spec.dtype)
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    call = _Call(
        sizes=(ctypes.c_int64 * len(spec.sizes))(*spec.sizes),
        scalars=(ctypes.c_float * len(spec.scalars))(*spec.scalars),
        inputs=pointers,
        output=result.ctypes.data,
    )
    assert ctypes.CDLL(str(library)).kernel(ctypes.byref(call)) == 0
    return result, expected


@pytest.mark.parametrize(
    ("kind", "shape", "dtype", "residual"),
    [
        ("layer_norm", (6, 768), "float16", False),
        ("layer_norm", (2, 5, 77), "float32", True),
        ("layer_norm", (3, 2050), "float16", True),
        ("rms_norm", (5, 260), "float32", False),
        ("rms_norm", (2, 4096), "float16", True),
    ],
)
def test_rows_spread_over_few_or_many_threads_give_the_norm(
    kind: str, shape: tuple[int, ...], dtype: str, residual: bool, tmp_path: Path
) -> None:
    pattern = f"cutlass.{'add_' if residual else ''}{kind}"
    module = norm(kind, shape, dtype, residual=residual)
    whole = read_whole(CudaCase("norm", "cutlass", pattern, module))
    rows, columns = whole.partition.spec.sizes
    offered = row_configurations(rows, columns, whole.partition.spec.output.bits)
    assert len(offered) > 1
    # One or several warps per row, one or several accesses per thread: the extremes.
    extremes = {min(offered, key=lambda c: c.threads), max(offered, key=lambda c: c.threads)}
    for number, made in enumerate(extremes):
        folder = tmp_path / str(number)
        folder.mkdir()
        result, expected = run(whole, made, folder)
        error = np.abs(result.astype("float64") - expected).max() / np.abs(expected).max()
        assert error < RTOL[dtype], made
