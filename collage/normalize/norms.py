"""Normalization layers: batch norm vanishes, layer norm gets its operator, LRN a plain 2-D pool."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import TUPLE_ITEM, Rules, Scope


def _batch_norm_to_affine(scope: Scope, item: relax.TupleGetItem) -> relax.Expr | None:
    """Inference ``batch_norm`` is ``x * s + t`` per channel; a convolution before it takes both in.

    ``s = gamma / sqrt(var + eps)`` and ``t = beta - mean * s``, computed in float64.
    """
    norm = scope.call(item.tuple_value, "nn.batch_norm")
    if norm is None or item.index != 0 or bool(norm.attrs.training):
        return None
    x = norm.args[0]
    values = [scope.digits.value(arg) for arg in norm.args[1:]]
    if any(v is None for v in values) or not rw.is_tensor(x):
        return None
    gamma, beta, mean, variance = (v.astype("float64") for v in values if v is not None)
    slope = 1.0 / np.sqrt(variance + float(norm.attrs.epsilon))
    if norm.attrs.scale:
        slope = slope * gamma
    offset = -mean * slope
    if norm.attrs.center:
        offset = offset + beta
    rank = len(static_shape(x))
    shape = [1] * rank
    shape[int(norm.attrs.axis) % rank] = -1
    product = relax.op.multiply(x, scope.digits.constant(slope.reshape(shape), rw.dtype_of(x)))
    return relax.op.add(
        scope.emit(product), scope.digits.constant(offset.reshape(shape), rw.dtype_of(x))
    )


def _layer_norm(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``(x - mean) / sqrt(var + eps)`` over the last axes is ``nn.layer_norm`` without affine part.

    Gains and offsets that follow are taken in by :func:`_affine_into_layer_norm`.
    """
    if not rw.is_tensor(call):
        return None
    found = _normalized(scope, call)
    if found is None:
        return None
    centered, epsilon_sum = found
    shifted = scope.call(centered, "subtract")
    spread = scope.call(epsilon_sum, "add")
    if shifted is None or spread is None or not rw.is_constant(spread.args[1]):
        return None
    epsilon = rw.scalar(spread.args[1])
    x = shifted.args[0]
    axes = _mean_axes(scope, shifted.args[1], x)
    variance = _variance_axes(scope, spread.args[0], centered, x)
    if epsilon is None or axes is None or variance != axes:
        return None
    features = tuple(static_shape(x)[a] for a in axes)
    dtype = rw.dtype_of(x)
    return relax.op.nn.layer_norm(
        x,
        rw.make_constant(np.ones(features), dtype),
        rw.make_constant(np.zeros(features), dtype),
        axes=[a - len(static_shape(x)) for a in axes],
        epsilon=epsilon,
    )


def _normalized(scope: Scope, call: relax.Call) -> tuple[relax.Expr, relax.Expr] | None:
    """(d, v) of ``d / sqrt(v)`` or ``d * rsqrt(v)`` or ``d * (1 / sqrt(v))``."""
    if rw.op_name(call) == "divide":
        root = scope.call(call.args[1], "sqrt")
        return None if root is None else (call.args[0], root.args[0])
    for centered, inverse in (call.args, call.args[::-1]):
        reciprocal = scope.call(inverse, "divide")
        if reciprocal is not None and rw.scalar(reciprocal.args[0]) == 1.0:
            root = scope.call(reciprocal.args[1], "sqrt")
        else:
            root = scope.call(inverse, "rsqrt")
        if root is not None:
            return centered, root.args[0]
    return None


def _mean_axes(scope: Scope, expr: relax.Expr, x: relax.Expr) -> list[int] | None:
    """The axes of ``mean(x, axes, keepdims)`` when they are the last ones of ``x``."""
    mean = scope.call(expr, "mean")
    if mean is None or not mean.args[0].same_as(x) or not mean.attrs.keepdims:
        return None
    return _trailing_axes(mean.attrs.axis, len(static_shape(x)))


def _variance_axes(
    scope: Scope, expr: relax.Expr, centered: relax.Expr, x: relax.Expr
) -> list[int] | None:
    """The axes when ``expr`` is the variance of ``x``: written so, or as the mean of squares."""
    variance = scope.call(expr, "variance")
    if variance is not None and variance.args[0].same_as(x) and variance.attrs.keepdims:
        return _trailing_axes(variance.attrs.axis, len(static_shape(x)))
    mean = scope.call(expr, "mean")
    square = scope.call(mean.args[0], "multiply") if mean is not None else None
    if mean is None or square is None or not mean.attrs.keepdims:
        return None
    if not all(_same_value(scope, arg, centered) for arg in square.args):
        return None
    return _trailing_axes(mean.attrs.axis, len(static_shape(x)))


def _same_value(scope: Scope, a: relax.Expr, b: relax.Expr) -> bool:
    """Whether two variables are the same, or differences of the same two variables."""
    if a.same_as(b):
        return True
    x, y = scope.call(a, "subtract"), scope.call(b, "subtract")
    return (
        x is not None
        and y is not None
        and all(p.same_as(q) for p, q in zip(x.args, y.args, strict=True))
    )


def _trailing_axes(axes: list[int] | None, rank: int) -> list[int] | None:
    found = sorted(int(a) % rank for a in axes) if axes is not None else list(range(rank))
    return found if found and found == list(range(found[0], rank)) else None


def _affine_into_layer_norm(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A gain or offset after ``nn.layer_norm`` becomes its gamma or beta."""
    pair = rw.operand_pair(call)
    norm = scope.call(pair[0], "nn.layer_norm") if pair is not None else None
    if pair is None or norm is None or not scope.only_use(pair[0]):
        return None
    gamma, beta, value = (scope.digits.value(c) for c in (norm.args[1], norm.args[2], pair[1]))
    if (
        gamma is None
        or beta is None
        or value is None
        or static_shape(call) != static_shape(pair[0])
    ):
        return None
    while value.ndim > gamma.ndim and value.shape[0] == 1:
        value = value[0]
    if value.ndim > gamma.ndim:
        return None
    value = np.broadcast_to(value, gamma.shape)
    if rw.op_name(call) == "multiply":
        gamma, beta = gamma * value, beta * value
    else:
        beta = beta + value
    return relax.op.nn.layer_norm(
        norm.args[0],
        scope.digits.constant(gamma, rw.dtype_of(call)),
        scope.digits.constant(beta, rw.dtype_of(call)),
        axes=[int(a) for a in norm.attrs.axes],
        epsilon=float(norm.attrs.epsilon),
    )


def _layer_norm_axes(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Axes are counted from the back, so that equal layers are equal at every rank."""
    axes = [int(a) for a in call.attrs.axes]
    rank = len(static_shape(call.args[0]))
    if all(a < 0 for a in axes):
        return None
    return rw.with_attrs(call, axes=[a - rank if a >= 0 else a for a in axes])


def _instance_norm_axes(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A norm over the samples too, where there is but one, is an instance norm as others are.

    PyTorch exports instance norms as batch norms of one sample.
    """
    axes = [int(a) % len(static_shape(call.args[0])) for a in call.attrs.axes]
    if static_shape(call.args[0])[0] != 1 or 0 not in axes or len(axes) == 1:
        return None
    return rw.with_attrs(call, axes=[a for a in axes if a != 0])


def _flatten_3d_pool(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A 3-D average pool along one axis alone, as in LRN, is a 2-D one over flattened planes.

    ``(N, C, D, H, W)`` with window ``(size, 1, 1)`` becomes ``(N, C, D, H * W)`` with window
    ``(size, 1)``: 2-D pools are what libraries and layout passes know.
    """
    attrs = call.attrs
    window, strides, dilation, padding = (
        [int(v) for v in values]
        for values in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )
    plain = window[1:] == strides[1:] == dilation[1:] == [1, 1]
    flat = padding[1:3] == padding[4:] == [0, 0]
    if str(attrs.layout) != "NCDHW" or not (plain and flat) or not rw.is_tensor(call.args[0]):
        return None
    n, c, d, h, w = static_shape(call.args[0])
    pooled = relax.op.nn.avg_pool2d(
        scope.emit(rw.reshape(call.args[0], (n, c, d, h * w))),
        pool_size=(window[0], 1),
        strides=(strides[0], 1),
        padding=(padding[0], 0, padding[3], 0),
        dilation=(dilation[0], 1),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
    )
    return rw.reshape(scope.emit(pooled), static_shape(call))


def _reciprocal_root(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``1 / sqrt(x)`` is ``rsqrt(x)``."""
    root = scope.call(call.args[1], "sqrt")
    one = rw.is_constant(call.args[0]) and rw.scalar(call.args[0]) == 1.0
    if root is None or not one or not rw.is_float(call) or static_shape(call) != static_shape(root):
        return None
    return relax.op.rsqrt(root.args[0])


RULES: Rules = {
    TUPLE_ITEM: (_batch_norm_to_affine,),
    "divide": (_layer_norm, _reciprocal_root),
    "multiply": (_layer_norm, _affine_into_layer_norm),
    "add": (_affine_into_layer_norm,),
    "nn.layer_norm": (_layer_norm_axes,),
    "nn.instance_norm": (_instance_norm_axes,),
    "nn.avg_pool3d": (_flatten_3d_pool,),
}
