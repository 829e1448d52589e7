"""Estimated and tabled costs: enough to search for a GPU that is not here."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BackendTarget, Precision, Roofline
from collage.backends.contract.errors import TargetError
from collage.backends.contract.registry import get_backend
from collage.cost.base import Cost, CostStatus, Overheads
from collage.cost.models.roofline import SPECS, DeviceSpec, RooflineCostModel
from collage.cost.models.table import TableCostModel
from collage.cost.workload.describe import count_flops
from collage.cost.workload.workload import Workload
from tests.cost_tests.support import native_partition, tensor

SM90 = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
PLAIN = DeviceSpec("plain", 100e12, 50e12, 10e12, 1e12, launch_sec=1e-6)
WHOLE = Roofline(1.0, 1.0, 1.0, 1.0)


def target(backend: str, **options: bool) -> BackendTarget:
    return BackendTarget(backend, SM90, get_backend(backend).parse_options(options))


def dense(m: int, k: int, n: int, dtype: str = "float16") -> Workload:
    a, b = tensor("a", m, k, dtype=dtype), tensor("b", k, n, dtype=dtype)
    return Workload.from_module(native_partition([a, b], op.matmul))


def seconds(model: RooflineCostModel, workload: Workload, to: BackendTarget) -> float:
    cost = model.estimate([workload], [to])[0]
    assert cost.status is CostStatus.VALID
    return cost.median_sec


def test_a_large_product_is_bound_by_arithmetic_and_a_thin_one_by_memory() -> None:
    model = RooflineCostModel(PLAIN, {"cutlass": WHOLE})
    large, thin = dense(4096, 4096, 4096), dense(1, 4096, 4096)
    assert seconds(model, large, target("cutlass")) == pytest.approx(2 * 4096**3 / 100e12 + 1e-6)
    moved = 2 * (4096 + 4096 * 4096 + 4096)
    assert seconds(model, thin, target("cutlass")) == pytest.approx(moved / 1e12 + 1e-6)


def test_float32_takes_the_units_that_the_target_allows() -> None:
    model = RooflineCostModel(PLAIN, {"cutlass": WHOLE})
    workload = dense(4096, 4096, 4096, "float32")
    flops = 2 * 4096**3
    for options, peak in (
        ({"use_3xtf32": False}, 10e12),
        ({"use_3xtf32": False, "allow_tf32": True}, 50e12),
        ({"use_3xtf32": True}, 50e12 / 3),
        ({"use_3xtf32": True, "allow_tf32": True}, 50e12),
    ):
        assert seconds(model, workload, target("cutlass", **options)) == pytest.approx(
            flops / peak + 1e-6
        )


def test_a_backend_says_how_fast_it_is_and_with_how_many_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    to, workload = target("cublas"), dense(4096, 4096, 4096, "float32")
    kind = type(to.implementation)
    monkeypatch.setattr(kind, "roofline", lambda *_: Roofline(0.5, 0.5, 0.5, 0.5))
    monkeypatch.setattr(kind, "precision", lambda *_: Precision.FLOAT16)
    expected = 2 * 4096**3 / (0.5 * 100e12) + 1e-6
    assert seconds(RooflineCostModel(PLAIN), workload, to) == pytest.approx(expected)


def test_what_is_fused_moves_less_than_what_is_not() -> None:
    model = RooflineCostModel()
    x, w = tensor("x", 64, 768, dtype="float16"), tensor("w", 768, 768, dtype="float16")
    fused = Workload.from_module(native_partition([x, w], lambda a, b: op.nn.gelu(op.matmul(a, b))))
    product = Workload.from_module(native_partition([x, w], op.matmul))
    y = tensor("y", 64, 768, dtype="float16")
    activation = Workload.from_module(native_partition([y], op.nn.gelu))
    to = target("cutlass")
    apart = seconds(model, product, to) + seconds(model, activation, to)
    assert seconds(model, fused, to) < apart


def test_libraries_are_told_apart_and_can_be_told_better() -> None:
    model = RooflineCostModel()
    workload = dense(4096, 4096, 4096)
    assert seconds(model, workload, target("cublas")) < seconds(model, workload, target("tvm"))
    other = RooflineCostModel(rooflines={"tvm": Roofline(0.99, 0.99, 0.99, 0.99)})
    assert seconds(other, workload, target("tvm")) < seconds(other, workload, target("cublas"))
    assert model.overheads(target("tvm")) == Overheads(0.0, SPECS["sm_90"].launch_sec)


def test_attention_counts_both_of_its_products() -> None:
    q = tensor("q", 2, 128, 12, 64, dtype="float16")
    v = tensor("v", 2, 100, 12, 32, dtype="float16")
    k = tensor("k", 2, 100, 12, 64, dtype="float16")
    workload = Workload.from_module(native_partition([q, k, v], op.nn.attention))
    assert count_flops(workload.module) == 2 * (2 * 12 * 128 * 100 * (64 + 32))
    assert seconds(RooflineCostModel(), workload, target("cudnn")) > 0


def test_an_unknown_device_is_refused_with_those_that_are_known() -> None:
    old = BackendTarget("tvm", tvm.target.Target({"kind": "cuda", "arch": "sm_35"}))
    with pytest.raises(TargetError, match=r"no data sheet for sm_35.*sm_90"):
        RooflineCostModel().estimate([dense(8, 8, 8)], [old])
    assert math.isfinite(RooflineCostModel(PLAIN).estimate([dense(8, 8, 8)], [old])[0].median_sec)


def test_a_table_answers_by_key_then_by_description_then_by_default() -> None:
    workload = dense(8, 16, 32)
    named = TableCostModel({(workload.describe(), "cublas"): 2.0})
    assert named.estimate([workload], [target("cublas")])[0].median_sec == 2.0
    assert named.estimate([workload], [target("cudnn")])[0].status is CostStatus.UNKNOWN
    refused = Cost(CostStatus.BUILD_FAILED, reason="no")
    table = TableCostModel(
        {(workload.key, "cublas"): 1.0, (workload.describe(), "cublas"): 2.0,
         (workload.key, "cudnn"): refused},
        default=RooflineCostModel(),
    )  # fmt: skip
    answers = table.estimate([workload] * 3, [target(n) for n in ("cublas", "cudnn", "tvm")])
    assert answers[0].median_sec == 1.0 and answers[1] == refused
    assert answers[2] == RooflineCostModel().estimate([workload], [target("tvm")])[0]
    assert table.asked == [(workload.key, name) for name in ("cublas", "cudnn", "tvm")]
    assert table.overheads(target("tvm")).partition_sec > 0
    assert named.overheads(target("tvm")) == Overheads(0.0, 0.0)


def test_a_region_pays_for_each_of_its_products() -> None:
    model = RooflineCostModel(PLAIN, {"cutlass": WHOLE})
    x = tensor("x", 32, 64, 56, 56, dtype="float16")
    weight = relax.const(np.ones((64, 64, 3, 3), "float16"))
    one = Workload.from_module(native_partition([x], lambda a: op.nn.conv2d(a, weight, padding=1)))
    two = Workload.from_module(
        native_partition(
            [x], lambda a: op.nn.conv2d(op.nn.conv2d(a, weight, padding=1), weight, padding=1)
        )
    )
    assert seconds(model, two, target("cutlass")) == pytest.approx(
        2 * seconds(model, one, target("cutlass")), rel=0.01
    )


def test_regions_count_what_they_read() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 2, 8, 8], "float32"))
    regions = relax.Var("regions", relax.TensorType([3, 5], "float32"))
    with builder.function("main", [x, regions]):
        pooled = relax.op.vision.roi_pool(x, regions, (2, 2), 0.5)
        builder.emit_func_output(builder.emit(pooled))
    assert count_flops(builder.get()) == 1 * 2 * 8 * 8
