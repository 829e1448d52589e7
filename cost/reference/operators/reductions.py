"""Reductions and normalizations over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from collage.cost.reference.values import (
    Array,
    Operator,
    OperatorTable,
    UnsupportedOperator,
    Value,
    axes_of,
    widen,
)


def _reduction(function: Any) -> Operator:
    def apply(call: relax.Call, args: list[Value]) -> Value:
        x = widen(args[0])
        axes = axes_of(call.attrs.axis, x.ndim)
        return function(x, axis=axes, keepdims=bool(call.attrs.keepdims))

    return apply


def _arg_reduction(function: Callable[..., Any]) -> Operator:
    def apply(call: relax.Call, args: list[Value]) -> Value:
        axis = call.attrs.axis
        x = widen(args[0])
        return function(
            x, axis=None if axis is None else int(axis), keepdims=bool(call.attrs.keepdims)
        )

    return apply


def _cumulative(function: Callable[..., Any]) -> Operator:
    def apply(call: relax.Call, args: list[Value]) -> Value:
        if call.attrs.exclusive:
            raise UnsupportedOperator("exclusive cumulation")
        axis = call.attrs.axis
        x = args[0] if axis is not None else args[0].reshape(-1)
        return function(x, axis=0 if axis is None else int(axis))

    return apply


def _log_softmax_of(x: Array, axis: int) -> Array:
    shifted = x - x.max(axis=axis, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return result


def _softmax(call: relax.Call, args: list[Value]) -> Value:
    return np.exp(_log_softmax_of(widen(args[0]), int(call.attrs.axis)))


def _log_softmax(call: relax.Call, args: list[Value]) -> Value:
    return _log_softmax_of(widen(args[0]), int(call.attrs.axis))


def _standardize(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    mean = x.mean(axis=axes, keepdims=True)
    variance = np.square(x - mean).mean(axis=axes, keepdims=True)
    result: Array = (x - mean) / np.sqrt(variance + epsilon)
    return result


def _affine(attrs: Any, x: Array, gamma: Array, beta: Array, shape: list[int]) -> Array:
    if attrs.scale:
        x = x * widen(gamma).reshape(shape)
    if attrs.center:
        x = x + widen(beta).reshape(shape)
    return x


def _layer_norm(call: relax.Call, args: list[Value]) -> Value:
    x, gamma, beta = args
    axes = axes_of(call.attrs.axes, x.ndim)
    shape = [n if i in axes else 1 for i, n in enumerate(x.shape)]
    out = _standardize(widen(x), axes, float(call.attrs.epsilon))
    return _affine(call.attrs, out, gamma, beta, shape)


def _rms_norm(call: relax.Call, args: list[Value]) -> Value:
    x, weight = widen(args[0]), widen(args[1])
    axes = axes_of(call.attrs.axes, x.ndim)
    shape = [n if i in axes else 1 for i, n in enumerate(x.shape)]
    mean_square = np.square(x).mean(axis=axes, keepdims=True)
    return x / np.sqrt(mean_square + float(call.attrs.epsilon)) * weight.reshape(shape)


def _instance_norm(call: relax.Call, args: list[Value]) -> Value:
    x, gamma, beta = args
    channel = int(call.attrs.channel_axis) % x.ndim
    shape = [n if i == channel else 1 for i, n in enumerate(x.shape)]
    out = _standardize(widen(x), axes_of(call.attrs.axes, x.ndim), float(call.attrs.epsilon))
    return _affine(call.attrs, out, gamma, beta, shape)


def _group_norm(call: relax.Call, args: list[Value]) -> Value:
    x, gamma, beta = args
    channel = int(call.attrs.channel_axis) % x.ndim
    axes = axes_of(call.attrs.axes, x.ndim)
    groups = int(call.attrs.num_groups)
    split = [*x.shape[:channel], groups, x.shape[channel] // groups, *x.shape[channel + 1 :]]
    # The channels of one group are averaged too; axes after the channel moved up by one.
    inner = tuple([channel + 1] + [a + 1 if a > channel else a for a in axes if a != channel])
    out = _standardize(widen(x).reshape(split), inner, float(call.attrs.epsilon))
    shape = [n if i == channel else 1 for i, n in enumerate(x.shape)]
    return _affine(call.attrs, out.reshape(x.shape), gamma, beta, shape)


def _batch_norm(call: relax.Call, args: list[Value]) -> Value:
    if call.attrs.training:
        raise UnsupportedOperator("batch_norm in training mode")
    x, gamma, beta, mean, variance = args
    shape = [1] * x.ndim
    shape[int(call.attrs.axis) % x.ndim] = -1
    scale = np.sqrt(widen(variance) + float(call.attrs.epsilon)).reshape(shape)
    out = (widen(x) - widen(mean).reshape(shape)) / scale
    return _affine(call.attrs, out, gamma, beta, shape), mean, variance


REDUCTIONS: OperatorTable = {
    **{
        f"relax.{name}": _reduction(function)
        for name, function in {
            "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod,
            "variance": np.var, "std": np.std,
        }.items()
    },
    "relax.argmax": _arg_reduction(np.argmax),
    "relax.argmin": _arg_reduction(np.argmin),
    "relax.cumsum": _cumulative(np.cumsum),
    "relax.cumprod": _cumulative(np.cumprod),
    "relax.nn.softmax": _softmax,
    "relax.nn.log_softmax": _log_softmax,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.rms_norm": _rms_norm,
    "relax.nn.instance_norm": _instance_norm,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.batch_norm": _batch_norm,
}  # fmt: skip
