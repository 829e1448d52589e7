"""What TVM's importer does not compute of pools: where each maximum was, and a dropout's mask."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import (
    Array,
    Converter,
    Node,
    Refused,
    fixed_tensor,
)
from collage.importers.onnx.operators.windows.convolution import Window
from collage.importers.windows import elements_of_windows, maxima_with_places


def _max_pool(node: Node) -> relax.Expr | None:
    """TVM's, but where the maxima's places are asked for: those elements are laid side by side.

    With ``SAME_LOWER`` TVM's has a window too few where strides do not divide the data.
    """
    emit, shape = node.emit, node.shape(0)
    if node.outputs == 1:
        if not node.text("auto_pad", "NOTSET").startswith("SAME"):
            return None
        kernel = node.integers("kernel_shape", ())
        window = Window.over(node, shape[2:], kernel)
        pool = getattr(op.nn, f"max_pool{len(kernel)}d")
        return emit(pool(node.operand(0), kernel, window.strides, window.pads, window.dilations))
    numbers = _row_or_column_major(node, shape[2:])
    windows = _windows(node, shape[2:])
    most, places = maxima_with_places(emit, node.operand(0), shape, windows, numbers)
    planes = np.arange(shape[0] * shape[1], dtype="int64") * math.prod(shape[2:])
    planes = planes.reshape(shape[0], shape[1], *[1] * (len(shape) - 2))
    return relax.Tuple([most, emit(op.add(places, fixed_tensor(planes)))])


def _row_or_column_major(node: Node, extents: list[int]) -> Array:
    """The number that ONNX gives each element of a plane; one more for what lies beyond it."""
    numbers = np.arange(math.prod(extents), dtype="int64")
    if node.integer("storage_order", 0):
        numbers = numbers.reshape(extents[::-1]).transpose().reshape(-1)
    return np.append(numbers, 0)


def _windows(node: Node, extents: list[int]) -> Array:
    """Which elements of a plane lie in each window: (results along each axis..., elements)."""
    rank = len(extents)
    kernel = node.integers("kernel_shape", ())
    window = Window.over(node, extents, kernel)
    strides, dilations, pads = window.strides, window.dilations, window.pads
    same = node.text("auto_pad", "NOTSET").startswith("SAME")
    rounded = math.ceil if node.integer("ceil_mode", 0) else math.floor
    along = []
    for axis, extent in enumerate(extents):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        before, after = pads[axis], pads[rank + axis]
        if same:
            count = -(-extent // strides[axis])
        else:
            count = rounded((extent + before + after - reach) / strides[axis]) + 1
            if (count - 1) * strides[axis] >= extent + before:
                count -= 1  # A window that begins behind the end.
        steps = np.arange(count)[:, None] * strides[axis] - before
        along.append(steps + np.arange(kernel[axis])[None, :] * dilations[axis])
    return elements_of_windows(extents, along)


def _dropout(node: Node) -> relax.Expr | None:
    """TVM's, but where the mask is asked for: nothing is dropped."""
    if node.has(2):
        training = node.constant(2)
        ratio = node.constant(1) if node.has(1) else np.asarray(0.5)
        if training is None or (training.any() and (ratio is None or ratio.item() != 0)):
            raise Refused("training mode: it draws random numbers")
    if node.outputs == 1:
        return None
    x = node.operand(0)
    return relax.Tuple([x, node.emit(op.ones(node.shape(0), "bool"))])


CONVERTERS: dict[str, Converter] = {
    "Dropout": _dropout,
    "MaxPool": _max_pool,
}
