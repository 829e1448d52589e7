"""Converters of reductions, softmax and normalizations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from collage.backends.onnxruntime.model import OrtTensor
from collage.backends.onnxruntime.problem import RegionWriter, converts
from collage.backends.relax.calls.arguments import (
    axes_of,
    batch_norm_terms,
    extents,
    operator_name,
)
from collage.backends.relax.static_shape import static_shape, tensor_dtype

REDUCTIONS = {"sum": "Sum", "mean": "Mean", "max": "Max", "min": "Min", "prod": "Prod"}
"""Relax operators and ONNX's ``Reduce…``."""


@converts(*REDUCTIONS)
def _reduction(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(w.shape(x)))
    return w.reduce(REDUCTIONS[operator_name(call)], x, axes, bool(call.attrs.keepdims))


@converts("variance", "std")
def _variance(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(w.shape(x)))
    centered = w.node("Sub", x, w.reduce("Mean", x, axes, True))
    square = w.node("Mul", centered, centered)
    result = w.reduce("Mean", square, axes, bool(call.attrs.keepdims))
    return w.node("Sqrt", result) if operator_name(call) == "std" else result


@converts("argmax", "argmin")
def _arg_reduction(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x, axis = w.tensor(call.args[0]), call.attrs.axis
    if axis is None:
        x, axis = w.reshape(x, (math.prod(w.shape(x)),)), 0
    kind = {"argmax": "ArgMax", "argmin": "ArgMin"}[operator_name(call)]
    # Of equal values the first, as numpy has it.
    settings: dict[str, Any] = {
        "axis": int(axis) % len(w.shape(x)),
        "keepdims": 0,
        "select_last_index": 0,
    }
    found = w.reshape(w.node(kind, x, dtype="int64", **settings), static_shape(call))
    return w.cast(found, tensor_dtype(call))


@converts("cumsum")
def _cumsum(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x, axis = w.tensor(call.args[0]), call.attrs.axis
    if axis is None:
        x, axis = w.reshape(x, (math.prod(w.shape(x)),)), 0
    place = w.constant(np.array(int(axis) % len(w.shape(x)), np.int64))
    return w.node("CumSum", x, place, exclusive=int(bool(call.attrs.exclusive)))


@converts("nn.softmax")
def _softmax(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x = w.tensor(call.args[0])
    return w.node("Softmax", x, axis=int(call.attrs.axis) % len(w.shape(x)))


@converts("nn.log_softmax")
def _log_softmax(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x = w.tensor(call.args[0])
    return w.node("LogSoftmax", x, axis=int(call.attrs.axis) % len(w.shape(x)))


def _terms(w: RegionWriter, call: relax.Call, shape: tuple[int, ...]) -> tuple[OrtTensor, ...]:
    """Gamma and beta, as far as the operator says that they count."""
    gamma, beta = (w.reshape(w.tensor(arg), shape) for arg in call.args[1:3])
    if not call.attrs.scale:
        gamma = w.constant(np.ones(shape, np.float32))
    if not call.attrs.center:
        beta = w.constant(np.zeros(shape, np.float32))
    return gamma, beta


@converts("nn.layer_norm")
def _layer_norm(w: RegionWriter, call: relax.Call) -> OrtTensor:
    # Over the last axes alone.
    x = w.tensor(call.args[0])
    axes = axes_of(call, len(w.shape(x)), "axes")
    terms = _terms(w, call, tuple(w.shape(x)[axis] for axis in axes))
    epsilon = float(call.attrs.epsilon)
    return w.node("LayerNormalization", x, *terms, axis=min(axes), epsilon=epsilon)


@converts("nn.rms_norm")
def _rms_norm(w: RegionWriter, call: relax.Call) -> OrtTensor:
    # Over the last axis alone. The operator is onnxruntime's own, in ONNX's domain.
    x, weight = w.tensor(call.args[0]), w.tensor(call.args[1])
    epsilon = float(call.attrs.epsilon)
    return w.node("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=epsilon)


@converts("nn.instance_norm")
def _instance_norm(w: RegionWriter, call: relax.Call) -> OrtTensor:
    # Over all axes behind the channels.
    x = w.tensor(call.args[0])
    terms = _terms(w, call, (w.shape(x)[1],))
    return w.node("InstanceNormalization", x, *terms, epsilon=float(call.attrs.epsilon))


@converts("nn.group_norm")
def _group_norm(w: RegionWriter, call: relax.Call) -> OrtTensor:
    # Over all axes behind the channels: each group is a channel of an instance norm.
    x, attrs = w.tensor(call.args[0]), call.attrs
    shape, groups = w.shape(x), int(attrs.num_groups)
    ones, zeros = (w.constant(np.full(groups, value, np.float32)) for value in (1, 0))
    grouped = w.reshape(x, (shape[0], groups, math.prod(shape[1:]) // groups))
    normal = w.node("InstanceNormalization", grouped, ones, zeros, epsilon=float(attrs.epsilon))
    gamma, beta = _terms(w, call, tuple(extents(shape, [1])[1:]))
    return w.node("Add", w.node("Mul", w.reshape(normal, shape), gamma), beta)


@converts("nn.batch_norm")
def _batch_norm(w: RegionWriter, call: relax.Call) -> list[OrtTensor]:
    x, attrs = w.tensor(call.args[0]), call.attrs
    axis = int(attrs.axis) % len(w.shape(x))
    terms = [a.astype(np.float32) for a in batch_norm_terms(call)]
    moving = [w.tensor(arg) for arg in call.args[3:5]]
    if axis == 1:
        # What it fuses with the convolution before.
        channels = terms[0].size
        statistics = (w.constant(np.full(channels, value, np.float32)) for value in (0, 1))
        operands = (*(w.constant(a.reshape(-1)) for a in terms), *statistics)
        return [w.node("BatchNormalization", x, *operands, epsilon=0.0), *moving]
    scale, bias = (w.constant(a.reshape(extents(w.shape(x), [axis]))) for a in terms)
    return [w.node("Add", w.node("Mul", x, scale), bias), *moving]
