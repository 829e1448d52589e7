"""Every CUDA target in one model: a cost table gives each its part, and one library holds them all.

For sm_89, for which TensorRT for RTX builds engines on a machine with no GPU.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import BundleError
from collage.backends.toolchain.cuda_runtime import has_device
from collage.config import Config
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.models.table import TableCostModel
from collage.cost.workload.workload import Workload
from collage.targets import TargetLike
from tests.machine_code import defined_functions, device_code, needed_libraries

pytestmark = pytest.mark.cuda
pytest.importorskip("tensorrt_rtx", reason="engines without a GPU need TensorRT for RTX")

TARGETS: tuple[TargetLike, ...] = (
    {"kind": "cuda", "arch": "sm_89"},
    {"kind": "cutlass", "sm": 80},
    "cublas",
    "cudnn",
    "tensorrt",
)

TABLE = {
    ("permute_dims 2x8x16x16", "tvm"): 1.0e-5,
    ("conv2d 2x16x16x8 * 16x3x3x8 + bias + relu", "cudnn"): 1.1e-5,
    ("conv2d 2x16x16x16 * 32x3x3x16 + bias + relu", "tensorrt"): 1.2e-5,
    ("mean 2x8x8x32", "tvm"): 1.7e-5,
    ("matmul 2x32 * 32x64 + bias + relu", "cutlass"): 1.3e-5,
    ("layer_norm 2x64", "tvm"): 1.4e-5,
    ("matmul 2x64 * 64x48 + bias", "cublas"): 1.5e-5,
    ("cumsum 2x48", "tvm"): 1.6e-5,
}
"""Seconds by workload and backend; one way through the network, in the network's order."""

REQUIRED = {
    "libcudart.so.13": "nvidia-cuda-runtime",
    "libcublasLt.so.13": "nvidia-cublas",
    "libcudnn.so.9": "nvidia-cudnn-cu13",
}


class DearCosts(CostModel):
    """A millisecond for everything."""

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        return [Cost(CostStatus.VALID, 1e-3, samples_sec=(1e-3,)) for _ in workloads]


def network() -> tvm.IRModule:
    """Two convolutions, two dense layers with a norm between them, and a sum only TVM knows."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> relax.Expr:
        return relax.const((rng.standard_normal(shape) / 8).astype("float16"))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 8, 16, 16), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = op.nn.conv2d(x, weights(16, 8, 3, 3), padding=1)
            value = op.nn.relu(op.add(value, weights(1, 16, 1, 1)))
            value = op.nn.conv2d(value, weights(32, 16, 3, 3), strides=2, padding=1)
            value = op.mean(op.nn.relu(op.add(value, weights(1, 32, 1, 1))), [2, 3])
            value = op.nn.relu(op.add(op.matmul(value, weights(32, 64)), weights(64)))
            value = op.nn.layer_norm(value, weights(64), weights(64), axes=[-1])
            value = op.add(op.matmul(value, weights(64, 48)), weights(48))
            out = builder.emit_output(op.cumsum(value, axis=1))
        builder.emit_func_output(out)
    return builder.get()


@dataclass(frozen=True)
class Exported:
    """What came out, and the folder it was exported to."""

    result: collage.Result
    folder: Path

    @property
    def library(self) -> Path:
        return self.folder / "model.so"

    @property
    def parts(self) -> list[tuple[int, str, tuple[str, ...]]]:
        """Nodes, backend and composites of every partition, in the network's order."""
        return [
            (c.nodes, c.backend, tuple(part.name for part in c.composites))
            for c in sorted(self.result.partitioning.candidates, key=lambda c: c.nodes)
        ]


def optimized(targets: Sequence[TargetLike], folder: Path) -> Exported:
    costs = TableCostModel(TABLE, default=DearCosts())
    result = collage.optimize(network(), targets, cost_model=costs)
    return Exported(result, result.export(folder))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return optimized(TARGETS, tmp_path_factory.mktemp("all") / "bundle")


def test_each_target_gets_what_the_table_gives_it(exported: Exported) -> None:
    assert [backend for _, backend, _ in exported.parts] == [backend for _, backend in TABLE]
    assert exported.result.partitioning.seconds == pytest.approx(sum(TABLE.values()))
    by_backend = {backend: composites for _, backend, composites in exported.parts}
    assert by_backend["cutlass"] == ("cutlass.matmul_bias_relu",)
    assert by_backend["cublas"] == ("cublas.matmul_bias",)
    assert by_backend["cudnn"] == ("cudnn.conv2d_bias_relu",)
    assert by_backend["tensorrt"] == ("tensorrt.conv2d", "tensorrt.add", "tensorrt.relu")
    (chosen,) = (row.name for row in exported.result.report.end_to_end if row.chosen)
    assert chosen == "search"


def test_one_library_holds_the_code_of_all(exported: Exported) -> None:
    functions = defined_functions(exported.library)
    entries = {f"__tvm_ffi_{name}_0" for name in ("cutlass", "cublas", "cudnn", "tensorrt")}
    assert entries <= functions
    assert not {name.replace("_0", "_1") for name in entries} & functions
    # CUTLASS's kernel is known by the stub that launches it, TVM's by where their image lies.
    assert any("cutlass" in name and "GemmWithFusedEpilogue" in name for name in functions)
    images = device_code(exported.library)
    assert {(image.kind, image.arch) for image in images} == {("elf", 89)}
    assert len(images) == 2 and min(image.size_bytes for image in images) > 5000, images
    data = exported.library.read_bytes()
    kept = (Config.from_environment().cache_dir / "tuning" / "blobs").iterdir()
    (plan,) = (plan for path in kept if (plan := path.read_bytes()) in data)
    assert data.count(plan) == 1
    # An engine of TensorRT for RTX holds source of its own, compiled when it is loaded.
    assert b'extern "C" __global__' not in data.replace(plan, b""), "CUDA source was embedded"


def test_the_manifest_lists_the_needs_of_all(exported: Exported) -> None:
    manifest = json.loads((exported.folder / "manifest.json").read_text())
    required = {need["soname"]: need for need in manifest["required_libraries"]}
    assert REQUIRED.items() <= {name: need["package"] for name, need in required.items()}.items()
    assert all(need["version"] for need in required.values())
    assert set(required) <= needed_libraries(exported.library)
    versions = manifest["backend_versions"]
    assert {"cutlass", "cublasLt", "cudnn", "tensorrt_rtx"} <= set(versions)
    kind, package, version = manifest["runtimes"]["tensorrt"].split(":")
    assert (package, version) == ("tensorrt_rtx", versions["tensorrt_rtx"])
    # With TensorRT's headers its library is linked against, else its Python package runs engines.
    linked = [need for need in required.values() if need["package"] == "tensorrt-rtx-cu13"]
    assert len(linked) == (kind == "shim")
    assert manifest["arch"] == "sm_89"


@pytest.mark.parametrize("order", [(4, 3, 2, 1, 0), (2, 4, 0, 1, 3)], ids=str)
def test_the_order_of_targets_does_not_matter(
    order: tuple[int, ...], exported: Exported, tmp_path: Path
) -> None:
    other = optimized([TARGETS[i] for i in order], tmp_path / "bundle")
    assert other.parts == exported.parts
    assert other.result.partitioning.seconds == exported.result.partitioning.seconds
    assert defined_functions(other.library) == defined_functions(exported.library)
    assert device_code(other.library) == device_code(exported.library)
    manifests = [json.loads((e.folder / "manifest.json").read_text()) for e in (exported, other)]
    for manifest in manifests:
        del manifest["created"]
        # The linker takes objects in the order of the targets: what is in them was compared above.
        manifest["files"] = [written["file"] for written in manifest["files"]]
        manifest["required_libraries"].sort(key=lambda need: need["soname"])
    assert manifests[0] == manifests[1]


def _with_manifest(folder: Path, copy: Path, old: str, new: str) -> Path:
    """A copy of a bundle whose manifest says something else."""
    shutil.copytree(folder, copy)
    path = copy / "manifest.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return copy


@pytest.mark.parametrize("soname", sorted(REQUIRED))
def test_each_missing_library_is_named_with_its_version(
    soname: str, exported: Exported, tmp_path: Path
) -> None:
    missing = soname.rpartition(".")[0] + ".99"
    folder = _with_manifest(exported.folder, tmp_path / "bundle", soname, missing)
    words = rf"needs {missing} .*version \d+\.\d.*pip install '{REQUIRED[soname]}==\d+\.\*'$"
    with pytest.raises(BundleError, match=words) as caught:
        collage.load(folder)
    assert caught.value.value == missing


def test_another_tensorrt_is_named_with_its_version(exported: Exported, tmp_path: Path) -> None:
    manifest = json.loads((exported.folder / "manifest.json").read_text())
    kind, package, version = manifest["runtimes"]["tensorrt"].split(":")
    if kind == "shim":
        pytest.skip("TensorRT's headers are here, so its library is linked")
    folder = _with_manifest(
        exported.folder, tmp_path / "bundle", f":{package}:{version}", f":{package}:0.1"
    )
    with pytest.raises(BundleError, match=rf"built by {package} 0\.1 .*{version} is installed"):
        collage.load(folder)


@pytest.mark.skipif(has_device(), reason="there is a GPU here")
def test_where_nothing_but_the_gpu_is_missing_the_gpu_is_named(exported: Exported) -> None:
    with pytest.raises(BundleError, match="runs on a GPU"):
        collage.load(exported.folder)
