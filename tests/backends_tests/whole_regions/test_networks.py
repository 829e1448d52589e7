"""Whole networks as regions of a library, and their bundles where that is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import collage
from benchmarks.networks.tiny import tiny_bert, tiny_mobilenet
from collage.backends.contract import BuildContext
from collage.cost.reference import largest_error
from tests.backends_tests.whole_regions.networks import NETWORKS, error_as_one_region
from tests.backends_tests.whole_regions.regions import Regions


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_one_region_and_right(
    regions: Regions, name: str, context: BuildContext
) -> None:
    assert error_as_one_region(name, regions.name, context) < 2e-5


_ELSEWHERE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[4]:
            raise ImportError(name)
sys.meta_path.insert(0, Hidden())
import numpy as np, tvm
from tvm import relax
folder, given, made, library = sys.argv[1:]
machine = relax.VirtualMachine(tvm.runtime.load_module(folder + "/model.so"), tvm.cpu())
inputs = [tvm.runtime.tensor(array) for array in np.load(given).values()]
np.save(made, machine["main"](*inputs).numpy())
mapped = {line.split()[-1] for line in open("/proc/self/maps") if f"lib{library}" in line}
assert mapped and all(path.startswith(folder) for path in mapped), mapped
"""
"""Runs a bundle on TVM's runtime alone."""


@pytest.mark.parametrize("name", ["bert", pytest.param("mobilenet", marks=pytest.mark.slow)])
def test_a_bundle_runs_elsewhere(regions: Regions, name: str, tmp_path: Path) -> None:
    made = tiny_bert() if name == "bert" else tiny_mobilenet()
    result = collage.optimize(made, ["llvm", regions.name], strategy=f"single:{regions.name}")
    assert regions.name in {part.backend for part in result.report.partitions}
    folder = result.export(tmp_path / "here")
    folder = folder.rename(tmp_path / "there")
    inputs = collage.bundle.load(folder).manifest.inputs
    rng = np.random.default_rng()
    arrays = [
        rng.integers(0, 2, i.shape).astype(i.dtype)
        if i.dtype.startswith("int")
        else rng.standard_normal(i.shape).astype(i.dtype)
        for i in inputs
    ]
    np.savez(tmp_path / "inputs.npz", *arrays)
    command = [sys.executable, "-c", _ELSEWHERE, str(folder)]
    files = [str(tmp_path / "inputs.npz"), str(tmp_path / "output.npy"), regions.name]
    done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx.ModelProto.SerializeToString(made))
    (expected,) = session.run(None, dict(zip([i.name for i in inputs], arrays, strict=True)))
    assert largest_error(np.load(tmp_path / "output.npy"), expected) < 1e-4
