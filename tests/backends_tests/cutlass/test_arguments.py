"""What the GEMM kernels are launched with, as a program on the host prints it: no GPU needed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.cases.compiling import ARCH
from collage.backends.contract import BuildContext
from collage.backends.cutlass.library import TEMPLATES
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.unit import compile_flags, included_headers
from collage.backends.toolchain import compiling
from collage.backends.toolchain.cuda_toolkit import cached_cuda_compilation, cudart
from collage.config import Config

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(900)]

SOURCE = Path(__file__).with_name("cutlass_arguments.cu")
M, N, K, BATCH = 24, 40, 16, 3
A, B, BIAS, SOURCE_TENSOR, OUTPUT = 0x100, 0x200, 0x300, 0x400, 0x500


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("arguments")
    context = BuildContext(Config.from_environment().cache_dir, folder)
    headers = included_headers(SOURCE.read_text(encoding="utf-8"), TEMPLATES)
    made = cached_cuda_compilation(
        SOURCE, context, ARCH, compile_flags(CutlassOptions()), headers
    ).run()
    program, runtime = folder / "arguments", cudart().path
    rpath = f"-Wl,-rpath,{runtime.parent}"
    compiling.run_tool(["g++", "-o", str(program), str(made), str(runtime), rpath])
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_ampere_kernel(printed: dict[str, Any]) -> None:
    batched_mode = 2  # cutlass::gemm::GemmUniversalMode::kBatched
    assert printed["sm80"] == {
        "mode": batched_mode,
        "shape": [M, N, K, BATCH],
        # Of a, b, residual, result; the bias is one row for all rows of tiles.
        "ld": [K, K, N, N, 0],
        "batch": [M * K, K * N, M * N, M * N, 0],
        "pointers": [A, B, BIAS, SOURCE_TENSOR, OUTPUT],
        "epilogue": [1, 4, 1, 0],
    }


def test_slices_cover_the_reduced_axis_and_fit_the_workspace(printed: dict[str, Any]) -> None:
    split = printed["split"]
    assert split["mode"] == 1  # kGemmSplitKParallel
    assert split["k_per_slice"] % 8 == 0
    assert (split["slices"] - 1) * split["k_per_slice"] < 3000
    assert split["slices"] * split["k_per_slice"] >= 3000
    assert split["slice_stride"] == M * N
    assert split["workspace"] >= 4 * split["slices"] * M * N
