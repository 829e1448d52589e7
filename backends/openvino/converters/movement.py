"""Converters of operators that move elements and compute nothing."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from collage.backends.openvino.model import OvTensor
from collage.backends.openvino.problem import RegionWriter, converts
from collage.backends.relax.calls.arguments import Slice, operator_name
from collage.backends.relax.static_shape import static_shape


@converts("split")
def _split(w: RegionWriter, call: relax.Call) -> list[OvTensor]:
    x = w.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(w.shape(x))
    lengths = [static_shape(ty)[axis] for ty in call.ty.fields]
    parts = w.op.variadic_split(x, w.integers([axis]), w.integers(lengths))
    return list(parts.outputs())


def _sliced(w: RegionWriter, x: OvTensor, taken: Slice, shape: tuple[int, ...]) -> OvTensor:
    start, end, step = (
        w.integers(values) for values in (taken.start, taken.ends(shape), taken.step)
    )
    return w.op.slice(x, start, end, step, w.integers(range(len(shape)))).output(0)


@converts("strided_slice")
def _strided_slice(w: RegionWriter, call: relax.Call) -> OvTensor:
    return _sliced(w, w.tensor(call.args[0]), Slice.of(call), static_shape(call))


@converts("flip")
def _flip(w: RegionWriter, call: relax.Call) -> OvTensor:
    shape = static_shape(call)
    taken = Slice.backwards(int(call.attrs.axis), shape)
    return _sliced(w, w.tensor(call.args[0]), taken, shape)


PAD_MODES = {"constant": "constant", "edge": "edge", "replicate": "edge", "reflect": "reflect"}
"""Relax's modes of padding and OpenVINO's."""


@converts("nn.pad")
def _pad(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, attrs = w.tensor(call.args[0]), call.attrs
    widths = [int(width) for width in attrs.pad_width]
    begin, end = w.integers(widths[::2]), w.integers(widths[1::2])
    mode = PAD_MODES[str(attrs.pad_mode)]
    value = w.number(float(attrs.pad_value), x) if mode == "constant" else None
    return w.op.pad(x, begin, end, mode, value).output(0)


@converts("broadcast_to")
def _broadcast_to(w: RegionWriter, call: relax.Call) -> OvTensor:
    shape = w.integers(static_shape(call))
    return w.op.broadcast(w.tensor(call.args[0]), shape).output(0)


@converts("tile")
def _tile(w: RegionWriter, call: relax.Call) -> OvTensor:
    shape = static_shape(call)
    x = w.tensor(call.args[0])
    given = (1,) * (len(shape) - len(w.shape(x))) + w.shape(x)
    times = [wanted // have for wanted, have in zip(shape, given, strict=True)]
    return w.op.tile(w.reshape(x, given), w.integers(times)).output(0)


@converts("tril", "triu")
def _triangle(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, (*_, rows, columns) = w.tensor(call.args[0]), static_shape(call)
    diagonal = int(getattr(call.args[1], "value", call.args[1]))
    if operator_name(call) == "tril":
        kept = np.tri(rows, columns, diagonal, dtype=bool)
    else:
        kept = ~np.tri(rows, columns, diagonal - 1, dtype=bool)
    return w.op.select(w.constant(kept), x, w.number(0, x)).output(0)


@converts("take")
def _take(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, indices = w.tensor(call.args[0]), w.tensor(call.args[1])
    axis = call.attrs.axis
    if axis is None:
        x, axis = w.reshape(x, (math.prod(w.shape(x)),)), 0
    axis = int(axis) % len(w.shape(x))
    if str(call.attrs.mode) == "clip":
        indices = w.op.clamp(indices, 0, w.shape(x)[axis] - 1).output(0)
    return w.op.gather(x, indices, w.integers([axis])).output(0)


@converts("gather_elements")
def _gather_elements(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, indices = w.tensor(call.args[0]), w.tensor(call.args[1])
    return w.op.gather_elements(x, indices, int(call.attrs.axis) % len(w.shape(x))).output(0)


@converts("gather_nd")
def _gather_nd(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, indices = w.tensor(call.args[0]), w.tensor(call.args[1])
    return w.op.gather_nd(x, indices, int(call.attrs.batch_dims)).output(0)
