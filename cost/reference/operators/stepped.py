"""Products of values that are rounded to 256 steps over their own range, with exact sums."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage.backends.relax.stepped import NAME, Steps
from collage.cost.reference.values import Array, OperatorTable, Value


def to_bytes(values: Array) -> tuple[Array, np.float32, int]:
    """ONNX's ``DynamicQuantizeLinear``: whole numbers from 0 to 255, a step, and where zero is.

    In float32 whatever is computed in, as the standard has it: another step is another result.
    """
    x = values.astype(np.float32)
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    step = np.float32((high - low) / np.float32(255)) or np.float32(1)
    point = int(np.rint(np.clip(-low / step, 0, 255)))
    return np.clip(np.rint(x / step) + point, 0, 255), step, point


def _fixed_bytes(values: Array, steps: Steps) -> tuple[Array, np.float32, int]:
    """ONNX's ``QuantizeLinear`` to bytes; its zero of signed ones is 128 here."""
    x, step = values.astype(np.float32), np.float32(steps.step)
    return np.clip(np.rint(x / step) + steps.point, 0, 255), step, steps.point


def _stepped_matmul(call: relax.Call, args: list[Value]) -> Value:
    x, weights, scales, *centres = args
    steps = Steps.of(call)
    values, step, point = to_bytes(x) if steps is None else _fixed_bytes(x, steps)
    whole = weights.astype(np.float64)
    if centres:
        whole = whole + centres[0]
    # Whole numbers, of which float64 has enough.
    total = (values.astype(np.float64) - point) @ whole
    return (total * (scales * step)).astype(x.dtype)


STEPPED: OperatorTable = {NAME: _stepped_matmul}
