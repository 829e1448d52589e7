"""Products with matrices that are looked up: all products of few matrices, then the right ones."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import Rules, Scope

_MOST = 16
"""Matrices of which all products are computed. What is looked up is written and read again, two
numbers for each multiply-add; a processor does tens of these in the time, tensor cores hundreds."""

_USES = 2
"""Times that each matrix is looked up on average, at least: all of them are read."""


def _all_products_first(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``w[i[r]] @ x[r]``, and ``x[r] @ w[i[r]]``, is the part ``i[r]`` of ``x[r]`` times all of
    ``w``, for a constant ``w``.

    Mixtures of experts are written so. Their weights are read once then, not a matrix for each row,
    and every library takes the product.
    """
    if not rw.is_tensor(call) or not rw.is_float(call):
        return None
    first = scope.comes_from(call.args[0], "take")
    matrices, x = call.args if first else call.args[::-1]
    take = scope.call(matrices, "take")
    if take is None or not scope.only_use(matrices) or take.attrs.axis is None:
        return None
    weights, index = scope.digits.value(take.args[0]), take.args[1]
    shape = static_shape(x)
    one_row = len(shape) == 3 and shape[2 if first else 1] == 1
    if weights is None or weights.ndim != 3 or not one_row or int(take.attrs.axis) != 0:
        return None
    if rw.dtype_of(x) != rw.dtype_of(take.args[0]) or len(static_shape(index)) != 1:
        return None
    count, rows = len(weights), shape[0]
    if count > _MOST or rows < _USES * count or static_shape(index) != (rows,):
        return None
    by_input = weights.transpose(2, 0, 1) if first else weights.transpose(1, 0, 2)
    width = by_input.shape[2]
    flat = by_input.reshape(len(by_input), count * width)
    all_weights = scope.digits.constant(flat, rw.dtype_of(take.args[0]))
    row = scope.emit(rw.reshape(x, (rows, len(by_input))))
    products = scope.emit(relax.op.matmul(row, all_weights))
    parts = scope.emit(rw.reshape(products, (rows * count, width)))
    picked = relax.op.take(parts, _places(scope, index, rows, count), axis=0, mode="clip")
    return rw.reshape(scope.emit(picked), static_shape(call))


def _places(scope: Scope, index: relax.Expr, rows: int, count: int) -> relax.Expr:
    """Where the part of each row lies; indices outside count as the nearest inside, as before."""
    dtype = rw.dtype_of(index)
    bounded = scope.emit(relax.op.maximum(index, rw.make_constant(0, dtype)))
    bounded = scope.emit(relax.op.minimum(bounded, rw.make_constant(count - 1, dtype)))
    begins = rw.make_constant(np.arange(rows) * count, dtype)
    return scope.emit(relax.op.add(bounded, begins))


RULES: Rules = {"matmul": (_all_products_first,)}
