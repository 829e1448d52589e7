"""Norms of vectors in exported programs.

TVM's translator raises to powers in the tensor's own type: in half precision the squares of small
numbers vanish, those of numbers above 256 overflow, and the largest-element norm of any type is
infinite or one. PyTorch computes all of them in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of

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


NORMS: dict[str, Callable[[Any, fx.Node], Any]] = {"linalg_vector_norm.default": _vector_norm}
"""By the name that the translator has for an operator."""
