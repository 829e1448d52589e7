"""``max_error`` from a module to an answer that keeps to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract import Precision
from collage.backends.contract.errors import PrecisionError
from collage.backends.contract.registry import get_backend
from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.onednn.options import BFLOAT16_FLAGS
from collage.cost.models.roofline import RooflineCostModel
from collage.cost.reference import evaluate, largest_error
from collage.pipeline.precision.targets import in_precisions
from collage.targets import resolve_targets
from collage.testing.graphs import Emit, constant, graph

needs_bfloat16 = pytest.mark.skipif(
    not BFLOAT16_FLAGS & cpu_flags_here(), reason="this processor has no bfloat16"
)


def _network() -> tvm.IRModule:
    """Products that bfloat16 makes several times as fast."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.relu(emit(op.matmul(x, constant(512, 512, scale=1 / 16)))))
        return op.nn.relu(emit(op.matmul(y, constant(512, 512, scale=1 / 16))))

    return graph([(256, 512)], body)


def _computed(result: collage.Result, folder: Path, x: np.ndarray) -> np.ndarray:
    return np.asarray(collage.load(result.export(folder))(x))


@needs_bfloat16
def test_fewer_digits_are_taken_where_they_are_allowed(tmp_path: Path) -> None:
    mod = _network()
    log = tmp_path / "net.jsonl"
    allowed = {"max_error": 0.05, "precision": ["bfloat16"]}  # bytes may be faster yet
    result = collage.optimize(mod, ["llvm", "onednn"], **allowed, log=log, num_threads=1)
    rows = {row.name: row for row in result.report.end_to_end}
    assert rows["single:onednn_bfloat16"].largest_error is not None
    # Several times as fast: no crowd of other programs turns that around.
    assert {c.backend for c in result.partitioning.candidates} == {"onednn_bfloat16"}
    x = np.random.default_rng().standard_normal((256, 512)).astype(np.float32)
    (expected,) = evaluate(mod, [x])
    assert 2e-5 < largest_error(_computed(result, tmp_path / "b", x), expected) < 0.05
    assert result.report.max_error == 0.05
    page = (tmp_path / "b" / "report.html").read_text(encoding="utf-8")
    assert "Time against error" in page
    again = collage.optimize(
        mod, ["llvm", "onednn"], **allowed, log=log, num_threads=1, replay=True
    )
    assert again.module.script() == result.module.script()


@needs_bfloat16
def test_what_is_off_by_more_is_out(tmp_path: Path) -> None:
    result = collage.optimize(_network(), ["llvm", "onednn"], max_error=1e-5, num_threads=1)
    rows = {row.name: row for row in result.report.end_to_end}
    assert "1e-05 is allowed; it took" in rows["single:onednn_bfloat16"].note
    for candidate in result.partitioning.candidates:
        backend = candidate.target.implementation
        assert backend.precision(candidate.target.options) is Precision.FLOAT32
    assert result.report.outputs_max_rel_diff is not None
    assert result.report.outputs_max_rel_diff <= 1e-5


def test_targets_come_in_the_precisions_that_are_wanted() -> None:
    targets = resolve_targets(["llvm", "onednn", {"kind": "onednn", "name": "b", "layout": "nhwc"}])
    assert in_precisions(targets).names == (
        "tvm", "onednn", "onednn_bfloat16", "onednn_int8", "b", "b_bfloat16", "b_int8",
    )  # fmt: skip
    assert in_precisions(targets).named("b_bfloat16").option_dict() == {
        "layout": "nhwc",
        "precision": "bfloat16",
        "winograd": True,
    }
    assert in_precisions(targets, ["float32"]).names == targets.names
    # Whoever computes with fewer digits already does what the user said.
    fewer = resolve_targets(["llvm", {"kind": "onednn", "precision": "bfloat16"}])
    assert in_precisions(fewer).names == fewer.names


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_error": 0.0}, "max_error is 0.0"),
        ({"max_error": float("nan")}, "max_error is nan"),
        ({"precision": ["bfloat16"]}, "need max_error"),
        ({"max_error": 0.1, "precision": ["int3"]}, "unknown precision 'int3'"),
        ({"max_error": 0.1, "precision": ["tf32"]}, "no target computes in tf32.*bfloat16, int8"),
        ({"max_error": 0.1, "metric": "top5"}, "unknown metric 'top5'"),
        ({"metric": "top1"}, "a metric needs max_error"),
        ({"max_error": 0.1, "calibration": "mean"}, "unknown calibration 'mean'"),
        ({"max_error": 0.1, "cost_model": RooflineCostModel()}, "costs are estimated"),
    ],
)
def test_what_cannot_be_allowed_is_said(options: dict[str, object], message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        collage.optimize(_network(), ["llvm", "onednn"], **options)


needs_openvino = pytest.mark.skipif(
    not get_backend("openvino").probe().usable, reason="the extra [openvino] is not installed"
)


@needs_openvino
def test_bytes_keep_to_the_error_on_samples_that_nobody_showed(tmp_path: Path) -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.relu(emit(op.nn.conv2d(x, constant(64, 32, 3, 3, scale=1 / 17)))))
        y = emit(op.nn.relu(emit(op.nn.conv2d(y, constant(64, 64, 3, 3, scale=1 / 24)))))
        return op.nn.conv2d(y, constant(8, 64, 1, 1, scale=1 / 8))

    mod, random = graph([(1, 32, 28, 28)], body), np.random.default_rng()

    def sample() -> np.ndarray:
        return random.standard_normal((1, 32, 28, 28)).astype(np.float32)

    result = collage.optimize(
        *(mod, ["llvm", "openvino"]),
        max_error=0.08,
        precision=["int8"],
        calibration="minmax",
        inputs=[{"x0": sample()} for _ in range(3)],
        num_threads=1,
    )
    rows = {row.name: row for row in result.report.end_to_end}
    in_bytes = rows["single:openvino_int8"].largest_error
    assert in_bytes is not None
    assert 1e-3 < in_bytes < 0.08
    bundle = collage.load(result.export(tmp_path / "bundle"))
    for _ in range(3):
        x = sample()
        (expected,) = evaluate(mod, [x])
        assert largest_error(np.asarray(bundle(x)), expected) < 0.08


@needs_openvino
def test_the_users_own_metric_decides() -> None:
    """The same network with and without a metric that nobody but float32 keeps to."""

    def largest(got: list[np.ndarray], wanted: list[np.ndarray]) -> float:
        return 100 * float(np.abs(got[0] - wanted[0]).max())

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.relu(emit(op.matmul(x, constant(256, 256, scale=1 / 16)))))
        return op.matmul(y, constant(256, 16, scale=1 / 16))

    mod = graph([(64, 256)], body)
    found = {}
    for name, metric in (("top1", "top1"), ("own", largest)):
        result = collage.optimize(
            *(mod, ["llvm", "openvino"]),
            max_error=0.2,
            metric=metric,
            precision=["int8"],
            calibration="minmax",
            num_threads=1,
        )
        found[name] = result.report
    rows = {
        name: {row.name: row for row in report.end_to_end}["single:openvino_int8"]
        for name, report in found.items()
    }
    assert rows["top1"].largest_error is not None
    assert rows["top1"].largest_error <= 0.2
    # Where bytes are much faster they are the first answer, and the search has another without.
    rejected = [one.reason for one in found["own"].rejections if one.backend == "openvino_int8"]
    reason = next(text for text in (rows["own"].note, *rejected) if "largest is" in text)
    assert "0.2 is allowed" in reason
    chosen = found["own"].partitions
    assert "openvino_int8" not in {one.backend for one in chosen}
