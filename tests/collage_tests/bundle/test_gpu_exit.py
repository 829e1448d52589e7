"""How a process ends that ran a bundle on a GPU and never let go of it.

What is marked ``gpu`` needs one: ``pytest -m gpu tests/collage_tests/bundle/test_gpu_exit.py``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import collage
from collage.backends.toolchain.cuda_runtime import has_device
from collage.cost.models.roofline import SPECS, RooflineCostModel
from tests.collage_tests.pipeline.cuda import gpu_models

TOLERANCE = 5e-3

PROGRAM = """
import ctypes, sys
import numpy as np
import collage
bundle = collage.load(sys.argv[1])
np.save(sys.argv[3], bundle(np.load(sys.argv[2])))
{then}
"""

THEN = {
    # Python destroys what nobody refers to; this it never does.
    "kept": "ctypes.pythonapi.Py_IncRef(ctypes.py_object(bundle))",
    "let go": "del bundle",
}


@pytest.mark.gpu
@pytest.mark.skipif(not has_device(), reason="there is no CUDA device")
@pytest.mark.parametrize("then", sorted(THEN))
@pytest.mark.parametrize("weights", ["inside", "beside"])
@pytest.mark.parametrize("library", ["tvm", "cutlass", "cublas", "cudnn"])
def test_a_process_that_ran_a_bundle_ends_well(
    library: str, weights: str, then: str, tmp_path: Path
) -> None:
    """CUDA's runtime ends before libraries that were linked with it do."""
    model = gpu_models.wide()
    result = collage.optimize(
        model.module,
        ["cuda", *([] if library == "tvm" else [library])],
        cost_model=RooflineCostModel(SPECS["sm_90"]),
        strategy=f"single:{library}",
        weights=weights,
    )
    bundle = result.export(tmp_path / "bundle")
    beside = list((bundle / "weights").glob("*")) if (bundle / "weights").is_dir() else []
    assert bool(beside) == (weights == "beside"), sorted(bundle.rglob("*"))
    x = model.input(7)
    np.save(tmp_path / "x.npy", x)
    files = map(str, (bundle, tmp_path / "x.npy", tmp_path / "y.npy"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(then=THEN[then]), *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-4000:]}"
    model.check(x, np.load(tmp_path / "y.npy"), TOLERANCE)
