"""Converters of operators that move elements and compute nothing."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from collage.backends.onnxruntime.model import OrtTensor
from collage.backends.onnxruntime.problem import RegionWriter, converts
from collage.backends.relax.calls.arguments import Slice, operator_name
from collage.backends.relax.static_shape import leaf_types, static_shape, tensor_dtype


@converts("split")
def _split(w: RegionWriter, call: relax.Call) -> list[OrtTensor]:
    x = w.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(w.shape(x))
    lengths = [static_shape(ty)[axis] for ty in leaf_types(call.ty)]
    return w.nodes("Split", [x, w.integers(lengths)], [x.dtype] * len(lengths), axis=axis)


def _sliced(w: RegionWriter, x: OrtTensor, taken: Slice, shape: tuple[int, ...]) -> OrtTensor:
    axes = list(range(len(shape)))
    return w.node("Slice", x, *map(w.integers, (taken.start, taken.ends(shape), axes, taken.step)))


@converts("strided_slice")
def _strided_slice(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return _sliced(w, w.tensor(call.args[0]), Slice.of(call), static_shape(call))


@converts("flip")
def _flip(w: RegionWriter, call: relax.Call) -> OrtTensor:
    shape = static_shape(call)
    taken = Slice.backwards(int(call.attrs.axis), shape)
    return _sliced(w, w.tensor(call.args[0]), taken, shape)


PAD_MODES = {
    "constant": "constant",
    "edge": "edge",
    "replicate": "edge",
    "reflect": "reflect",
    "circular": "wrap",
}
"""Relax's modes of padding and ONNX's."""


@converts("nn.pad")
def _pad(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x, attrs = w.tensor(call.args[0]), call.attrs
    widths = [int(width) for width in attrs.pad_width]
    both = w.integers([*widths[::2], *widths[1::2]])
    mode = PAD_MODES[str(attrs.pad_mode)]
    value = w.number(float(attrs.pad_value), x.dtype) if mode == "constant" else None
    return w.node("Pad", x, both, value, mode=mode)


@converts("broadcast_to")
def _broadcast_to(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("Expand", w.tensor(call.args[0]), w.integers(static_shape(call)))


@converts("tile")
def _tile(w: RegionWriter, call: relax.Call) -> OrtTensor:
    shape = static_shape(call)
    x = w.tensor(call.args[0])
    given = (1,) * (len(shape) - len(w.shape(x))) + w.shape(x)
    times = [wanted // have for wanted, have in zip(shape, given, strict=True)]
    return w.node("Tile", w.reshape(x, given), w.integers(times))


@converts("tril", "triu")
def _triangle(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x = w.tensor(call.args[0])
    diagonal = int(getattr(call.args[1], "value", call.args[1]))
    place = w.constant(np.array(diagonal, np.int64))
    return w.node("Trilu", x, place, upper=int(operator_name(call) == "triu"))


@converts("take")
def _take(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x, indices = w.tensor(call.args[0]), w.tensor(call.args[1])
    axis = call.attrs.axis
    if axis is None:
        x, axis = w.reshape(x, (math.prod(w.shape(x)),)), 0
    axis = int(axis) % len(w.shape(x))
    if str(call.attrs.mode) == "clip":
        bounds = (w.number(bound, indices.dtype) for bound in (0, w.shape(x)[axis] - 1))
        indices = w.node("Clip", indices, *bounds)
    return w.node("Gather", x, indices, axis=axis)


@converts("gather_elements")
def _gather_elements(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x, indices = w.tensor(call.args[0]), w.tensor(call.args[1])
    return w.node("GatherElements", x, indices, axis=int(call.attrs.axis) % len(w.shape(x)))


@converts("gather_nd")
def _gather_nd(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x, indices = w.tensor(call.args[0]), w.cast(w.tensor(call.args[1]), "int64")
    made = w.node("GatherND", x, indices, batch_dims=int(call.attrs.batch_dims))
    assert made.dtype == tensor_dtype(call)
    return made
