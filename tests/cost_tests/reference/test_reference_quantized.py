"""The reference's quantization against TVM's own."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.cost.reference import evaluate, sample_of
from collage.testing.graphs import graph


def _module(axis: int, scales: np.ndarray, zeros: np.ndarray) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 6), "float32"))
    scale, zero = relax.const(scales, "float32"), relax.const(zeros, "int8")
    with builder.function("main", [x]):
        with builder.dataflow():
            steps = builder.emit(op.quantize(x, scale, zero, axis, "int8"))
            back = builder.emit(op.dequantize(steps, scale, zero, axis, "float32"))
            result = builder.emit_output(relax.Tuple([steps, back]))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("axis", "scales", "zeros"),
    [
        (-1, np.float32(0.05), np.int8(0)),
        (-1, np.linspace(0.01, 0.1, 6, dtype=np.float32), np.arange(-3, 3, dtype=np.int8)),
        (0, np.linspace(0.01, 0.1, 4, dtype=np.float32), np.int8(0)),
    ],
)
def test_quantization_is_tvms(axis: int, scales: np.ndarray, zeros: np.ndarray) -> None:
    mod = _module(axis, scales, zeros)
    values = np.random.default_rng().uniform(-8, 8, (4, 6)).astype(np.float32)
    steps, back = evaluate(mod, [values])
    assert steps.dtype == np.int8
    assert steps.min() == -128 or steps.max() == 127, "nothing reaches the ends of the range"
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    wanted = [tensor.numpy() for tensor in machine["main"](tvm.runtime.tensor(values))]
    # A quotient that ends in a half may be rounded either way.
    assert np.abs(steps.astype(int) - wanted[0].astype(int)).max() <= 1
    assert np.mean(steps != wanted[0]) < 0.05
    # TVM subtracts the zero point in int8, where it may wrap around: a fault of its own.
    exact = np.abs(steps.astype(int) - zeros) < 127
    assert np.abs(back - wanted[1])[exact].max() <= scales.max() * 1.001


_HALVES = np.arange(-8.5, 9.0, dtype=np.float32)
_EVEN = 2 * np.round(_HALVES / 2)
"""Each of them rounded: a quarter is no tie, whichever way those go."""


def test_halves_go_to_even_numbers() -> None:
    """As in ONNX, PyTorch and TVM's generated code."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(_HALVES.shape, "float32"))
    one, zero = relax.const(1.0, "float32"), relax.const(0, "int8")
    with builder.function("main", [x]):
        with builder.dataflow():
            whole = builder.emit(op.round(x))
            steps = builder.emit(op.quantize(x, one, zero, -1, "int8"))
            result = builder.emit_output(relax.Tuple([whole, steps]))
        builder.emit_func_output(result)
    mod = builder.get()
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    compiled = [tensor.numpy() for tensor in machine["main"](tvm.runtime.tensor(_HALVES))]
    for results in (evaluate(mod, [_HALVES]), compiled):
        for result in results:
            assert np.array_equal(result, _EVEN)


def test_values_between_two_steps_are_tried_more_than_once() -> None:
    """Each is at a tie: which step it falls to is decided by whoever computes it."""

    def body(emit, x):  # type: ignore[no-untyped-def]
        return op.round(emit(op.multiply(x, relax.const(np.float32(1)))))

    ties = np.arange(2000, dtype=np.float32) + np.float32(0.5)
    (noise,) = sample_of(graph([ties.shape], body), [ties]).noise
    assert noise.largest > 0


@pytest.mark.parametrize("away", [3e-7, 1e-6])
def test_values_are_tried_that_only_other_sums_bring_to_the_next_step(away: float) -> None:
    """Whoever adds up in another order is off by more than the last place of the result."""
    step, zero = relax.const(np.float32(1)), relax.const(np.int8(0), "int8")

    def body(emit, x):  # type: ignore[no-untyped-def]
        summed = emit(op.multiply(x, relax.const(np.float32(1))))
        steps = emit(op.quantize(summed, step, zero, axis=0, out_dtype="int8"))
        return op.dequantize(steps, step, zero, axis=0, out_dtype="float32")

    near = np.tile(np.arange(0, 100, 2, dtype=np.float32) + np.float32(0.5), 20)
    near *= np.float32(1 - away)
    (noise,) = sample_of(graph([near.shape], body), [near]).noise
    assert noise.largest > 0.9 / 100
