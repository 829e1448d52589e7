"""Norms of vectors in exported programs.

TVM's translator raises to powers in the tensor's own type: in half precision the squares of small
numbers vanish, those of numbers above 256 overflow, and the largest-element norm of any type is
infinite or one. PyTorch computes all of them in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of
from collage.importers.torch.operators.elementary.arithmetic import as_kind

_HALF = ("float16", "bfloat16")


def norm_of(
    importer: Importer, x: relax.Expr, order: float, axes: list[int] | None, keep: bool = False
) -> relax.Expr:
    """The norm of a float tensor over axes, in its type, computed in float32 at least.

    Parameters
    ----------
    importer : Importer
        Binds what is computed on the way.
    x : relax.Expr
        Of any shape.
    order : float
        As PyTorch's ``ord``: infinite ones are the largest and the smallest magnitude, 0 counts.
    axes : list of int or None
        Over which; None for all.
    keep : bool
        Whether they stay, with one element each.

    Returns
    -------
    relax.Expr
        In the type of ``x``.
    """
    dtype = dtype_of(x)
    if dtype in _HALF:
        x = importer.emit(op.astype(x, "float32"))
    result = _norm(importer, x, order, axes, keep)
    return importer.emit(op.astype(result, dtype)) if dtype in _HALF else result


def _norm(
    importer: Importer, x: relax.Expr, order: float, axes: list[int] | None, keep: bool
) -> relax.Expr:
    dtype = dtype_of(x)
    if order == 0:
        counted = importer.emit(op.astype(op.not_equal(x, relax.const(0.0, dtype)), dtype))
        return importer.emit(op.sum(counted, axes, keep))
    if order == 2:
        squares = importer.emit(op.multiply(x, x))
        return importer.emit(op.sqrt(importer.emit(op.sum(squares, axes, keep))))
    size = importer.emit(op.abs(x))
    if math.isinf(order):
        reduce = op.max if order > 0 else op.min
        return importer.emit(reduce(size, axes, keep))
    if order == 1:
        return importer.emit(op.sum(size, axes, keep))
    powers = importer.emit(op.power(size, relax.const(order, dtype)))
    total = importer.emit(op.sum(powers, axes, keep))
    return importer.emit(op.power(total, relax.const(1.0 / order, dtype)))


def _vector_norm(importer: Importer, node: fx.Node) -> relax.Expr:
    x, order, dims, keep, dtype = arguments(
        importer, node, "self", "ord", "dim", "keepdim", "dtype"
    )
    if dtype is not None:
        x = importer.emit(op.astype(x, str(dtype).removeprefix("torch.")))
    axes = [dims] if isinstance(dims, int) else (list(dims) if dims else None)
    return norm_of(importer, x, float(order), axes, bool(keep))


def _with_moments(importer: Importer, node: fx.Node) -> tuple[relax.Expr, ...] | None:
    """A layer norm or a group norm whose means and deviations are asked for too, or without scale.

    TVM's translator gives the result for all three, and takes no norm without a weight. TVM's group
    norm takes no bfloat16, and neither norm a tensor in half precision with weights in float32.
    """
    x, weight, bias, eps, normalized, groups = arguments(
        importer, node, *("input", "weight", "bias", "eps", "normalized_shape", "group")
    )
    asked = any(user.args[1] != 0 and user.users for user in node.users)
    emit, kind, shape = importer.emit, dtype_of(x), shape_of(x)
    if not asked and weight is not None and bias is not None:
        alike = dtype_of(weight) == dtype_of(bias) == kind
        if alike and (groups is None or kind != "bfloat16"):
            return None
        wide = [as_kind(importer, one, "float32") for one in (x, weight, bias)]
        if groups is None:
            found = op.nn.layer_norm(*wide, list(range(-len(normalized), 0)), eps)
        else:
            found = op.nn.group_norm(*wide, groups, 1, list(range(2, len(shape))), eps)
        return (emit(op.astype(emit(found), kind)),)
    wide = x if kind not in _HALF else emit(op.astype(x, "float32"))
    if groups is None:
        axes = list(range(len(shape) - len(normalized), len(shape)))
    else:
        wide = emit(op.reshape(wide, [shape[0], groups, math.prod(shape[1:]) // groups]))
        axes = [2]
    mean = emit(op.mean(wide, axes, keepdims=True))
    gap = emit(op.subtract(wide, mean))
    spread = emit(op.mean(emit(op.multiply(gap, gap)), axes, keepdims=True))
    spread = emit(op.add(spread, relax.const(eps, dtype_of(wide))))
    rate = emit(op.rsqrt(spread))
    found = emit(op.reshape(emit(op.multiply(gap, rate)), shape))
    ones = shape[:0] if groups is None else [shape[1], *[1] * (len(shape) - 2)]
    for factor, apply in ((weight, op.multiply), (bias, op.add)):
        if factor is not None:
            factor = factor if groups is None else emit(op.reshape(factor, ones))
            factor = factor if dtype_of(factor) == dtype_of(found) else _as(emit, factor, found)
            found = emit(apply(found, factor))
    results = [found, mean, rate]
    wanted = node.meta["val"]
    return tuple(
        emit(
            op.reshape(
                one if dtype_of(one) == name else emit(op.astype(one, name)), list(like.shape)
            )
        )
        for one, like, name in (
            (one, like, str(like.dtype).removeprefix("torch."))
            for one, like in zip(results, wanted, strict=True)
        )
    )


def _of_batches(importer: Importer, node: fx.Node) -> tuple[relax.Expr, ...] | None:
    """A batch or an instance norm in half precision whose weights or statistics are in float32."""
    names = ("weight", "bias", "running_mean", "running_var")
    x, eps, *given = arguments(importer, node, "input", "eps", *names)
    if all(each is None or dtype_of(each) == dtype_of(x) for each in given):
        return None
    emit, shape = importer.emit, shape_of(x)
    wide = as_kind(importer, x, "float32")
    weight, bias, mean, variance = (
        relax.const(np.full(shape[1], lacking, "float32"))
        if each is None
        else as_kind(importer, each, "float32")
        for each, lacking in zip(given, (1, 0, 0, 1), strict=True)
    )
    if "no_stats" in str(node.target):
        axes = [0, *range(2, len(shape))]
        found = emit(op.nn.instance_norm(wide, weight, bias, 1, axes, eps))
    else:
        found = emit(op.nn.batch_norm(wide, weight, bias, mean, variance, 1, eps, training=False))
        found = emit(relax.TupleGetItem(found, 0))
    return (emit(op.astype(found, dtype_of(x))),)


def _as(emit: Callable[..., relax.Expr], x: relax.Expr, like: relax.Expr) -> relax.Expr:
    return emit(op.astype(x, dtype_of(like)))


NORMS: dict[str, Callable[[Any, fx.Node], Any]] = {
    "linalg_vector_norm.default": _vector_norm,
    "native_layer_norm.default": _with_moments,
    "native_group_norm.default": _with_moments,
    "_native_batch_norm_legit_no_training.default": _of_batches,
    "_native_batch_norm_legit.no_stats": _of_batches,
}
"""By the name that the translator has for an operator."""
