"""The whole way for a GPU on a machine that has none: estimate, search, compile, link, export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
import tvm
from tvm import relax

import collage
from collage.backends.contract.errors import BundleError, TargetError
from collage.backends.toolchain.cuda_runtime import has_device
from collage.bundle.manifest import read_manifest
from collage.cost.models.roofline import RooflineCostModel
from collage.cost.models.table import TableCostModel

pytestmark = pytest.mark.cuda

TARGETS = ("cuda:arch=sm_90a", "cublas")


def transformer_block(dtype: str = "float16", layers: int = 1) -> tvm.IRModule:
    """The feed-forward half of a transformer layer, ``layers`` times with weights of their own."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> relax.Expr:
        return relax.const((rng.standard_normal(shape) / 16).astype(dtype))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 128), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for _ in range(layers):
                normed = relax.op.nn.layer_norm(value, weights(128), weights(128), axes=[-1])
                up = relax.op.add(relax.op.matmul(normed, weights(128, 256)), weights(256))
                down = relax.op.matmul(relax.op.nn.gelu_tanh(up), weights(256, 128))
                value = relax.op.add(relax.op.add(down, weights(128)), value)
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture(scope="module")
def result() -> collage.Result:
    return collage.optimize(
        transformer_block(layers=2), TARGETS, cost_model=RooflineCostModel(), strategy="search"
    )


def test_a_search_on_estimates_links_a_library_with_machine_code(
    result: collage.Result, tmp_path: Path
) -> None:
    used = {row.name for row in result.report.end_to_end if row.chosen}
    assert used == {"search"} or used == {"single:cublas"}
    assert {c.backend for c in result.partitioning.candidates} == {"tvm", "cublas"}
    library = result.export(tmp_path / "bundle") / "model.so"
    data = library.read_bytes()
    # A cubin is an ELF file of machine 190; one holds TVM's kernels.
    assert any(data[at + 18 : at + 20] == b"\xbe\x00" for at in _all(data, b"\x7fELF\x02\x01\x01"))
    assert b'extern "C" __global__' not in data


def _all(data: bytes, what: bytes) -> list[int]:
    places, at = [], data.find(what)
    while at >= 0:
        places.append(at)
        at = data.find(what, at + 1)
    return places


def test_estimates_are_called_estimates(result: collage.Result) -> None:
    assert all(row.note == "estimated, not measured" for row in result.report.end_to_end)
    assert result.report.search.measured == 0
    assert result.report.outputs_max_rel_diff is None


def test_the_manifest_lists_what_the_machine_must_have(
    result: collage.Result, tmp_path: Path
) -> None:
    folder = result.export(tmp_path / "bundle")
    manifest = json.loads((folder / "manifest.json").read_text())
    required = {need["soname"]: need for need in manifest["required_libraries"]}
    assert {"libcudart.so.13", "libcublasLt.so.13"} <= set(required)
    assert required["libcublasLt.so.13"]["package"] == "nvidia-cublas"
    assert required["libcublasLt.so.13"]["version"].startswith("13.")
    assert (manifest["device"], manifest["arch"]) == ("cuda", "sm_90a")


@pytest.mark.skipif(has_device(), reason="there is a GPU here")
def test_loading_without_a_gpu_says_so(result: collage.Result, tmp_path: Path) -> None:
    folder = result.export(tmp_path / "bundle")
    with pytest.raises(BundleError, match="runs on a GPU"):
        collage.load(folder)


def test_a_missing_library_is_named_with_its_version_before_anything_runs(
    result: collage.Result, tmp_path: Path
) -> None:
    folder = result.export(tmp_path / "bundle")
    path = folder / "manifest.json"
    text = path.read_text().replace("libcublasLt.so.13", "libcublasLt.so.99")
    path.write_text(text)
    with pytest.raises(BundleError, match=r"needs libcublasLt\.so\.99 .*version 13\..*pip install"):
        collage.load(folder)


@pytest.mark.skipif(has_device(), reason="there is a GPU here")
def test_measuring_without_a_gpu_is_refused() -> None:
    with pytest.raises(TargetError, match=r"driver|CUDA device|GPU"):
        collage.optimize(transformer_block(), TARGETS)


def test_a_cost_table_decides() -> None:
    """With cuBLAS made dear in the table, TVM gets everything."""
    module = transformer_block()
    cheap = RooflineCostModel()

    class DearLibrary(RooflineCostModel):
        def estimate(self, workloads, targets):  # type: ignore[no-untyped-def]
            costs = super().estimate(workloads, targets)
            table = {
                (w.key, "cublas"): 1.0
                for w, t in zip(workloads, targets, strict=True)
                if t.backend == "cublas"
            }
            known = TableCostModel(table, default=cheap).estimate(workloads, targets)
            assert len(known) == len(costs)
            return known

    result = collage.optimize(module, TARGETS, cost_model=DearLibrary())
    assert {c.backend for c in result.partitioning.candidates} == {"tvm"}


def test_an_external_cuda_target_without_a_cuda_target_is_refused() -> None:
    with pytest.raises(TargetError, match="'cublas' runs on cuda and needs the device target"):
        collage.optimize(transformer_block(), ["llvm", "cublas"])


def test_what_data_choose_is_machine_code_too(tmp_path: Path) -> None:
    """Each part has kernels; the virtual machine reads the condition on the host."""
    net = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17]>
        net (float[64,64] x, float limit) => (float[64,64] y) {
            yes = Constant <value = bool {1}> ()
            h = Loop (, yes, x) <
                body = step (int64 i, bool c, float[64,64] s) => (bool c2, float[64,64] s2)
                { s2 = MatMul(s, x) m = ReduceMax <keepdims = 0> (s2) c2 = Less(m, limit) }>
            m2 = ReduceMin <keepdims = 0> (h)
            low = Less(m2, limit)
            y = If (low) <
                then_branch = yes_ () => (float[64,64] p) { p = MatMul(h, h) },
                else_branch = no_ () => (float[64,64] p) { p = Neg(h) }>
        }"""
    )
    found = collage.optimize(net, TARGETS, cost_model=RooflineCostModel())
    assert {name.split("_")[0] for name in found.functions} == {"main", "body", "then", "else"}
    bundle = found.export(tmp_path / "bundle")
    assert [entry.name for entry in read_manifest(bundle).functions] == ["main"]
