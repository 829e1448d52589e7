"""Converters of reductions, softmax and normalizations."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from collage.backends.openvino.model import OvTensor
from collage.backends.openvino.problem import RegionWriter, converts
from collage.backends.relax.calls.arguments import (
    axes_of,
    batch_norm_terms,
    extents,
    operator_name,
)
from collage.backends.relax.static_shape import static_shape, tensor_dtype

REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "max", "min": "min", "prod": "prod"}
"""Relax operators and OpenVINO's ``reduce_…``."""


@converts(*REDUCTIONS)
def _reduction(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(w.shape(x)))
    return w.reduce(REDUCTIONS[operator_name(call)], x, axes, bool(call.attrs.keepdims))


@converts("variance", "std")
def _variance(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(w.shape(x)))
    centered = w.op.subtract(x, w.reduce("mean", x, axes, True))
    square = w.op.multiply(centered, centered).output(0)
    result = w.reduce("mean", square, axes, bool(call.attrs.keepdims))
    return w.op.sqrt(result).output(0) if operator_name(call) == "std" else result


@converts("argmax", "argmin")
def _arg_reduction(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, axis = w.tensor(call.args[0]), call.attrs.axis
    if axis is None:
        x, axis = w.reshape(x, (math.prod(w.shape(x)),)), 0
    mode = operator_name(call).removeprefix("arg")
    one = w.constant(np.array(1, np.int64))
    # Of equal values the first, as numpy has it.
    found = w.op.topk(x, one, int(axis) % len(w.shape(x)), mode, "value", "i32", True).output(1)
    return w.cast(w.reshape(found, static_shape(call)), tensor_dtype(call))


@converts("cumsum")
def _cumsum(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, axis = w.tensor(call.args[0]), call.attrs.axis
    if axis is None:
        x, axis = w.reshape(x, (math.prod(w.shape(x)),)), 0
    place = w.constant(np.array(int(axis) % len(w.shape(x)), np.int64))
    # OpenVINO would round after every addition.
    total = w.op.cum_sum(w.cast(x, "float32"), place, bool(call.attrs.exclusive)).output(0)
    return w.cast(total, tensor_dtype(call))


@converts("nn.softmax")
def _softmax(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    return w.op.softmax(x, int(call.attrs.axis) % len(w.shape(x))).output(0)


@converts("nn.log_softmax")
def _log_softmax(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    return w.op.log_softmax(x, int(call.attrs.axis) % len(w.shape(x))).output(0)


def _standardized(w: RegionWriter, x: OvTensor, axes: list[int], epsilon: float) -> OvTensor:
    """Mean 0 and variance 1 over the axes."""
    return w.op.mvn(x, w.integers(axes), True, epsilon, "inside_sqrt").output(0)


def _scaled(w: RegionWriter, x: OvTensor, call: relax.Call, kept: list[int]) -> OvTensor:
    """Times gamma and plus beta along the kept axes, as far as the operator says so."""
    shape = extents(w.shape(x), kept)
    gamma, beta = (w.reshape(w.tensor(arg), shape) for arg in call.args[1:3])
    if call.attrs.scale:
        x = w.op.multiply(x, gamma).output(0)
    return w.op.add(x, beta).output(0) if call.attrs.center else x


@converts("nn.layer_norm")
def _layer_norm(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(w.shape(x)), "axes")
    return _scaled(w, _standardized(w, x, axes, float(call.attrs.epsilon)), call, axes)


@converts("nn.rms_norm")
def _rms_norm(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(w.shape(x)), "axes")
    square = w.reduce("mean", w.op.multiply(x, x).output(0), axes, True)
    root = w.op.sqrt(w.op.add(square, w.number(float(call.attrs.epsilon), x)))
    normal = w.op.divide(x, root)
    weight = w.reshape(w.tensor(call.args[1]), extents(w.shape(x), axes))
    return w.op.multiply(normal, weight).output(0)


_LONG = 1024
"""More elements than that are not added one by one: of 131,072 the sums were off by 1e-5."""


@converts("nn.instance_norm")
def _instance_norm(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, attrs = w.tensor(call.args[0]), call.attrs
    shape = w.shape(x)
    channel, axes = int(attrs.channel_axis) % len(shape), axes_of(call, len(shape), "axes")
    # Behind a convolution channels lie last, and its kernel adds all of a channel one by one. In
    # groups of one channel they are added in the order of a plain tensor, by many sums.
    if math.prod(shape[axis] for axis in axes) > _LONG:
        whole = _by_groups(w, x, call, channel, axes, shape[channel])
        if whole is not None:
            return whole
    return _scaled(w, _standardized(w, x, axes, float(attrs.epsilon)), call, [channel])


def _by_groups(
    w: RegionWriter, x: OvTensor, call: relax.Call, channel: int, axes: list[int], groups: int
) -> OvTensor | None:
    """OpenVINO's norm by groups of channels; None where it has none over such axes."""
    attrs = call.attrs
    if (
        channel != 1
        or axes != list(range(2, len(w.shape(x))))
        or not (attrs.scale and attrs.center)
    ):
        return None
    gamma, beta = (w.tensor(arg) for arg in call.args[1:3])
    return w.op.group_normalization(x, gamma, beta, groups, float(attrs.epsilon)).output(0)


@converts("nn.group_norm")
def _group_norm(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, attrs = w.tensor(call.args[0]), call.attrs
    shape = w.shape(x)
    channel = int(attrs.channel_axis) % len(shape)
    axes = [axis for axis in axes_of(call, len(shape), "axes") if axis != channel]
    groups, epsilon = int(attrs.num_groups), float(attrs.epsilon)
    whole = _by_groups(w, x, call, channel, axes, groups)
    if whole is not None:
        return whole
    grouped = w.reshape(
        x, (*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :])
    )
    inner = sorted([channel + 1, *(axis + (axis > channel) for axis in axes)])
    normal = w.reshape(_standardized(w, grouped, inner, epsilon), shape)
    return _scaled(w, normal, call, [channel])


@converts("nn.batch_norm")
def _batch_norm(w: RegionWriter, call: relax.Call) -> list[OvTensor]:
    x, attrs = w.tensor(call.args[0]), call.attrs
    factor, shift = batch_norm_terms(call)
    shape = extents(w.shape(x), [int(attrs.axis) % len(w.shape(x))])
    wide = w.cast(x, "float32")
    scale, bias = (w.constant(a.reshape(shape).astype(np.float32)) for a in (factor, shift))
    result = w.op.add(w.op.multiply(wide, scale), bias).output(0)
    moving = [w.tensor(arg) for arg in call.args[3:5]]
    return [w.cast(result, tensor_dtype(call.args[0])), *moving]
