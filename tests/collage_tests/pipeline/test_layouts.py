"""Layouts between partitions, chosen by a whole search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import UserError
from collage.backends.devices import CPU, CUDA
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.reference import evaluate
from collage.cost.workload.workload import Workload
from collage.pipeline.layouts import LAYOUTS, chooses_layouts
from collage.report import Report
from collage.testing import constant, graph

SHAPE = (1, 8, 40, 40)
TARGETS = ["llvm", "onednn"]


class _LastIsFaster(CostModel):
    """A library is twice as fast with channels last at each side; converting takes a little."""

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        return [self._cost(*both) for both in zip(workloads, targets, strict=True)]

    def _cost(self, workload: Workload, target: BackendTarget) -> Cost:
        names: list[str] = []

        def visit(expr: relax.Expr) -> None:
            if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
                names.append(str(expr.op.name))

        for function in workload.module.functions.values():
            if isinstance(function, relax.Function):
                relax.analysis.post_order_visit(function, visit)
        converts = names.count("relax.permute_dims")
        work = len(names) - converts
        if not work:
            return Cost(CostStatus.VALID, 0.1e-3)
        each_sec = 4e-3 if target.backend == "tvm" and "relax.nn.conv2d" in names else 2e-3
        each_sec *= 1.5 if target.backend == "onednn" and "relax.nn.softmax" in names else 1
        return Cost(CostStatus.VALID, each_sec * work / 2**converts)


def _model() -> tvm.IRModule:
    def build(emit, x):  # type: ignore[no-untyped-def]
        x = emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))
        x = emit(op.nn.softmax(x, axis=1))
        x = emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))
        x = emit(op.nn.max_pool2d(x, (2, 2), (2, 2)))
        return emit(op.mean(x, [2, 3]))

    return graph([SHAPE], build)


MODEL = _model()
"""Made once: each has other weights."""


def _said(report: Report) -> str:
    return next((remark for remark in report.remarks if remark.startswith("layouts")), "")


def _picture() -> np.ndarray:
    return np.random.default_rng(0).normal(size=SHAPE).astype("float32")


def _outputs(result: collage.Result, tmp_path: Path) -> np.ndarray:
    result.export(tmp_path / "model.bundle")
    (output,) = collage.load(tmp_path / "model.bundle").run(None, {"x0": _picture()})
    return np.asarray(output)


def test_what_is_cheaper_with_channels_last_gets_them(tmp_path: Path) -> None:
    result = collage.optimize(
        MODEL, TARGETS, layouts=LAYOUTS, cost_model=_LastIsFaster(), num_threads=1
    )
    (want,) = evaluate(MODEL, [_picture()])
    np.testing.assert_allclose(_outputs(result, tmp_path), want, rtol=1e-4, atol=1e-5)
    assert "permute_dims" in str(result.module.script())
    assert "may be channels_last between partitions" in _said(result.report)
    plain = collage.optimize(MODEL, TARGETS, cost_model=_LastIsFaster(), num_threads=1)
    assert "permute_dims" not in str(plain.module.script())
    assert not _said(plain.report)
    assert result.partitioning.seconds < plain.partitioning.seconds


def test_what_is_banned_is_so_in_every_layout() -> None:
    result = collage.optimize(
        MODEL,
        TARGETS,
        layouts=LAYOUTS,
        cost_model=_LastIsFaster(),
        ban={"nn.max_pool2d": "onednn"},
        num_threads=1,
    )
    for function in result.module.functions.values():
        if function.attrs is not None and "Codegen" in function.attrs:
            assert "max_pool2d" not in str(function.script())


def test_a_log_has_the_layouts_that_were_chosen(tmp_path: Path) -> None:
    options = {"layouts": LAYOUTS, "log": tmp_path / "log.jsonl", "num_threads": 1}
    first = collage.optimize(MODEL, TARGETS, **options)  # type: ignore[arg-type]
    again = collage.optimize(MODEL, TARGETS, replay=True, **options)  # type: ignore[arg-type]
    assert first.module.script() == again.module.script()
    assert _said(first.report) == _said(again.report) != ""
    (want,) = evaluate(MODEL, [_picture()])
    np.testing.assert_allclose(_outputs(first, tmp_path), want, rtol=1e-4, atol=1e-5)


def test_each_device_has_a_layout_without_a_choice() -> None:
    assert not chooses_layouts(None, CPU) and not chooses_layouts(["plain"], CPU)
    assert not chooses_layouts(["channels_last"], CUDA)
    assert chooses_layouts(LAYOUTS, CUDA) and chooses_layouts("plain,channels_last", CPU)
    with pytest.raises(UserError, match="unknown layout 'blocked'; there are: plain, channels"):
        chooses_layouts(["plain", "blocked"], CPU)
    with pytest.raises(UserError, match="without plain, layouts cannot be chosen for cpu"):
        chooses_layouts(["channels_last"], CPU)
    with pytest.raises(UserError, match="along with max_error"):
        chooses_layouts(LAYOUTS, CPU, 0.01)
