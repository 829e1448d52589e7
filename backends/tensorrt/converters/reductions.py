"""Converters of reductions, softmax and normalizations; sums are made in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from collage.backends.relax.calls.arguments import (
    axes_of,
    batch_norm_terms,
    extents,
    operator_name,
)
from collage.backends.relax.static_shape import static_shape
from collage.backends.tensorrt.network.constants import TrtTensor
from collage.backends.tensorrt.network.values import mask
from collage.backends.tensorrt.problem import NetworkWriter, converts

REDUCTIONS = {"sum": "SUM", "mean": "AVG", "max": "MAX", "min": "MIN", "prod": "PROD"}
"""Relax operators and ``nvinfer1::ReduceOperation``."""


@converts(*REDUCTIONS)
def _reduction(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    kind = REDUCTIONS[operator_name(call)]
    axes = axes_of(call, len(x.shape))
    return w.cast_to(w.reduce(kind, w.in_float32(x), axes, bool(call.attrs.keepdims)), x.dtype)


@converts("variance", "std")
def _variance(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(x.shape))
    wide = w.in_float32(x)
    centered = w.binary("SUB", wide, w.reduce("AVG", wide, axes, True))
    square = w.binary("PROD", centered, centered)
    result = w.reduce("AVG", square, axes, bool(call.attrs.keepdims))
    if str(call.op.name) == "relax.std":
        result = w.unary("SQRT", result)
    return w.cast_to(result, x.dtype)


@converts("argmax", "argmin")
def _arg_reduction(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x, axis = w.tensor(call.args[0]), call.attrs.axis
    if axis is None:
        x, axis = w.reshape(x, (math.prod(x.shape),)), 0
    place = int(axis) % len(x.shape)
    operation = w.trt.TopKOperation.MAX if "max" in str(call.op.name) else w.trt.TopKOperation.MIN
    if len(x.shape) == 1:
        # TensorRT wants two dimensions at the least.
        x, place = w.with_rank(x, 2), 1
    layer = w.network.add_topk(x, operation, 1, 1 << place)
    indices = w.output(layer, "argmax", 1)
    return w.cast(w.reshape(indices, static_shape(call)), str(call.ty.dtype))


@converts("nn.softmax")
def _softmax(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    return w.cast_to(w.softmax(w.in_float32(x), int(call.attrs.axis) % len(x.shape)), x.dtype)


@converts("nn.log_softmax")
def _log_softmax(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    axes = [int(call.attrs.axis) % len(x.shape)]
    wide = w.in_float32(x)
    # Less the largest, as Relax does: the logarithm of a softmax would lose small values.
    centered = w.binary("SUB", wide, w.reduce("MAX", wide, axes, True))
    total = w.reduce("SUM", w.unary("EXP", centered), axes, True)
    return w.cast_to(w.binary("SUB", centered, w.unary("LOG", total)), x.dtype)


@converts("nn.layer_norm")
def _layer_norm(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(x.shape), "axes")
    shape = extents(x.shape, axes)
    wide = w.in_float32(x)
    scale, bias = (w.cast_to(w.reshape(w.tensor(arg), shape), wide.dtype) for arg in call.args[1:3])
    add = getattr(w.network, "add_normalization_v2", w.network.add_normalization)
    layer = add(wide, scale, bias, mask(axes))
    return w.cast_to(w.output(layer, "layer_norm", epsilon=float(call.attrs.epsilon)), x.dtype)


@converts("nn.rms_norm")
def _rms_norm(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(x.shape), "axes")
    shape = extents(x.shape, axes)
    wide = w.in_float32(x)
    square = w.reduce("AVG", w.binary("PROD", wide, wide), axes, True)
    normal = w.binary("PROD", wide, _inverse_root(w, square, float(call.attrs.epsilon)))
    weight = w.cast_to(w.reshape(w.tensor(call.args[1]), shape), wide.dtype)
    return w.cast_to(w.binary("PROD", normal, weight), x.dtype)


@converts("nn.group_norm", "nn.instance_norm")
def _group_norm(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x, attrs = w.tensor(call.args[0]), call.attrs
    channel = int(attrs.channel_axis) % len(x.shape)
    axes = axes_of(call, len(x.shape), "axes")
    wide = w.in_float32(x)
    if str(call.op.name) == "relax.nn.group_norm":
        groups, shape = int(attrs.num_groups), list(x.shape)
        shape[channel : channel + 1] = [groups, shape[channel] // groups]
        moved = [axis + 1 if axis > channel else axis for axis in axes if axis != channel]
        grouped = w.reshape(wide, shape)
        normal = _standardized(w, grouped, sorted([*moved, channel + 1]), float(attrs.epsilon))
        normal = w.reshape(normal, tuple(x.shape))
    else:
        normal = _standardized(w, wide, axes, float(attrs.epsilon))
    return w.cast_to(_scaled(w, normal, call, channel), x.dtype)


@converts("nn.batch_norm")
def _batch_norm(w: NetworkWriter, call: relax.Call) -> list[TrtTensor]:
    x, attrs = w.tensor(call.args[0]), call.attrs
    channel = int(attrs.axis) % len(x.shape)
    factor, shift = batch_norm_terms(call)
    shape = extents(x.shape, [channel])
    wide = w.in_float32(x)
    scale, bias = (
        w.cast_to(w.constant(array.astype(np.float32).reshape(shape), exact=True), wide.dtype)
        for array in (factor, shift)
    )
    result = w.binary("SUM", w.binary("PROD", wide, scale), bias)
    moving = [w.tensor(arg) for arg in call.args[3:5]]
    return [w.cast_to(result, x.dtype), *moving]


def _inverse_root(w: NetworkWriter, x: TrtTensor, epsilon: float) -> TrtTensor:
    return w.unary("RECIP", w.unary("SQRT", w.binary("SUM", x, w.filled(epsilon, x))))


def _standardized(w: NetworkWriter, x: TrtTensor, axes: Sequence[int], epsilon: float) -> TrtTensor:
    """Mean 0 and variance 1 over the axes."""
    centered = w.binary("SUB", x, w.reduce("AVG", x, axes, True))
    variance = w.reduce("AVG", w.binary("PROD", centered, centered), axes, True)
    return w.binary("PROD", centered, _inverse_root(w, variance, epsilon))


def _scaled(w: NetworkWriter, x: TrtTensor, call: relax.Call, channel: int) -> TrtTensor:
    """Times gamma and plus beta, per channel, as far as the operator says so."""
    shape = extents(x.shape, [channel])
    gamma, beta = (w.cast_to(w.reshape(w.tensor(a), shape), x.dtype) for a in call.args[1:3])
    if call.attrs.scale:
        x = w.binary("PROD", x, gamma)
    return w.binary("SUM", x, beta) if call.attrs.center else x
