"""Two libraries with the same kernel in one process: each has to set up its own copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.cases import case_of
from benchmarks.gpu.cases.worker import compile_and_refer, run_and_compare
from collage.backends.toolchain.cuda_runtime import has_device
from collage.config import Config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="there is no CUDA device"),
]


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("cutlass_conv", "conv2d_bias-float16-stride"),
        ("cutlass", "matmul_bias_relu-float16-2x64x128-128x192"),
    ],
)
def test_the_second_runs_as_well(tmp_path: Path, family: str, name: str) -> None:
    """Their kernels ask for more shared memory than a launch may have without being allowed it."""
    requests: list[dict[str, Any]] = []
    for number in range(2):
        request = {
            "family": family,
            "name": name,
            "device": "cuda",
            "folder": str(tmp_path / f"{number}"),
            "cache_dir": str(Config.from_environment().cache_dir),
            "seeds": [number],
        }
        requests.append({**request, **compile_and_refer(request)})
    for request in requests:
        assert run_and_compare(request)["largest_error"] <= case_of(family, name).rtol
