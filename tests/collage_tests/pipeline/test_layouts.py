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
        names = _operators(workload.module)
        converts = names.count("permute_dims")
        work = len(names) - converts
        if not work:
            return Cost(CostStatus.VALID, 0.1e-3)
        each_sec = 4e-3 if target.backend == "tvm" and "nn.conv2d" in names else 2e-3
        each_sec *= 1.5 if target.backend == "onednn" and "nn.softmax" in names else 1
        return Cost(CostStatus.VALID, each_sec * work / 2**converts)


def _operators(mod: tvm.IRModule) -> list[str]:
    names: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            names.append(str(expr.op.name).removeprefix("relax."))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return names


class _MakersGivePlain(CostModel):
    """Convolutions of points that read channels last are fast; who makes what they read is not."""

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        return [Cost(CostStatus.VALID, self._sec(workload)) for workload in workloads]

    def _sec(self, workload: Workload) -> float:
        names = _operators(workload.module)
        converts, work = names.count("permute_dims"), [n for n in names if n != "permute_dims"]
        if not work:
            return 0.1e-3
        text = str(workload.module)
        if work == ["nn.conv2d"] and "axes=[0, 3, 1, 2]" in text and "padding=[0, 0" in text:
            return 1e-3 * converts
        if sorted(work) == ["add", "nn.conv2d", "nn.conv2d"] and not converts:
            return 1e-3
        return 3e-3 * len(work) + 50e-3 * converts


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


def test_what_its_maker_reads_itself_is_converted_for_others_and_once_for_several(
    tmp_path: Path,
) -> None:
    def build(emit, x):  # type: ignore[no-untyped-def]
        x = emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))
        x = emit(op.add(x, x))
        y = emit(op.nn.softmax(emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1)), axis=1))
        return relax.Tuple([emit(op.nn.conv2d(z, constant(8, 8, 1, 1))) for z in (x, y, y)])

    mod = graph([SHAPE], build)
    result = collage.optimize(
        mod, TARGETS, layouts=LAYOUTS, cost_model=_MakersGivePlain(), num_threads=1
    )
    # Two convolutions and a sum in one, a softmax, three convolutions and two conversions.
    assert result.partitioning.seconds == pytest.approx(7.2e-3)
    assert "2 are (1:add, 12:nn.softmax), with 2 conversions" in _said(result.report)
    converting = [
        call
        for block in result.module["main"].body.blocks
        for call in block.bindings
        if isinstance(call.value, relax.Call)
        and call.value.op in result.module.functions
        and _operators(tvm.IRModule({"one": result.module[call.value.op]})) == ["permute_dims"]
    ]
    assert len(converting) == 2
    result.export(tmp_path / "model.bundle")
    # Large numbers would make the softmax a step.
    picture = np.float32(0.01) * _picture()
    outputs = collage.load(tmp_path / "model.bundle").run(None, {"x0": picture})
    for got, want in zip(outputs, evaluate(mod, [picture]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


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
