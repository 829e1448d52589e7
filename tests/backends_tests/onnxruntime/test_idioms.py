"""Chains of a region that become one node of onnxruntime's: what they compute stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.onnxruntime.problem import write_region
from collage.backends.toolchain.shared_bytes import SharedBytes
from collage.testing.graphs import Emit, graph
from tests.backends_tests.whole_regions.regions import Regions

pytestmark = Regions("onnxruntime").installed

SHAPE = (2, 3, 4, 5)


def _scalar(value: float, rank: int = 0) -> relax.Expr:
    return relax.const(np.full((1,) * rank, value, np.float32))


def _gate(emit: Emit, x: relax.Expr, slope: relax.Expr, offset: relax.Expr) -> relax.Expr:
    return emit(op.clip(emit(op.add(emit(op.multiply(x, slope)), offset)), 0, 1))


def _kinds_and_outputs(
    body: Callable[[Emit, relax.Expr], relax.Expr], x: np.ndarray
) -> tuple[list[str], list[np.ndarray]]:
    function = graph([SHAPE], body)["main"].with_attr("global_symbol", "main")
    model = write_region(function, SharedBytes()).model
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load_from_string(model).graph.node]
    return kinds, session.run(None, {"i0": x})


def _drawn() -> np.ndarray:
    return (4 * np.random.default_rng().standard_normal(SHAPE)).astype(np.float32)


@pytest.mark.parametrize("order", ["gate first", "gate second", "gate alone"])
@pytest.mark.parametrize("slope", [1 / 6, 0.2])
def test_hard_sigmoid_and_hard_swish(order: str, slope: float) -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        gate = _gate(emit, x, _scalar(slope), _scalar(0.5))
        if order == "gate alone":
            return gate
        return op.multiply(gate, x) if order == "gate first" else op.multiply(x, gate)

    x = _drawn()
    kinds, (found,) = _kinds_and_outputs(body, x)
    gate = np.clip(x.astype(np.float64) * slope + 0.5, 0, 1)
    np.testing.assert_allclose(found, gate if order == "gate alone" else x * gate, atol=2e-6)
    swish = ["HardSwish"] if slope == 1 / 6 else ["HardSigmoid", "Mul"]
    assert kinds == (["HardSigmoid"] if order == "gate alone" else swish)


def test_parts_that_are_outputs_too_are_still_made() -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        line = emit(op.add(emit(op.multiply(x, _scalar(1 / 6))), _scalar(0.5)))
        gate = emit(op.clip(line, 0, 1))
        return relax.Tuple([emit(op.multiply(x, gate)), line, gate])

    x = _drawn()
    kinds, found = _kinds_and_outputs(body, x)
    line = x.astype(np.float64) / 6 + 0.5
    gate = np.clip(line, 0, 1)
    for one, wanted in zip(found, (x * gate, line, gate), strict=True):
        np.testing.assert_allclose(one, wanted, atol=2e-6)
    assert kinds == ["Mul", "Add", "HardSigmoid", "HardSwish"]


@pytest.mark.parametrize(
    "slope, offset, high",
    [
        (_scalar(0.2), _scalar(0.5), 6.0),
        (_scalar(0.2, 5), _scalar(0.5), 1.0),
        (_scalar(0.2), relax.const(np.float32([0.1, 0.2, 0.3, 0.4, 0.5])), 1.0),
        (relax.const(np.float32([1, 2, 3, 4, 5])), _scalar(0.5), 1.0),
    ],
)
def test_other_bounds_slopes_and_offsets_stay_as_they_are(
    slope: relax.Expr, offset: relax.Expr, high: float
) -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        line = emit(op.add(emit(op.multiply(x, slope)), offset))
        return op.multiply(emit(op.clip(line, 0, high)), x)

    x = _drawn()
    kinds, (found,) = _kinds_and_outputs(body, x)
    a, b = (c.value.numpy().astype(np.float64) for c in (slope, offset))
    np.testing.assert_allclose(found, x * np.clip(x * a + b, 0, high), atol=2e-5)
    assert kinds == ["Mul", "Add", "Clip", "Mul"]
