"""Determinants, inverses and solutions of systems, by elimination; bilinear forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of
from collage.importers.torch.operators.linear.by_programs import (
    BY_PROGRAMS,
    determinant,
    lower_root,
    solution,
)

_LARGEST = 16
"""Rows whose steps are written out, which a GPU takes for all matrices at once; others are computed
by programs."""


def keep_matrices(table: dict[Any, Any]) -> None:
    """Keep what PyTorch would check for errors in a way that no module has."""
    aten = torch.ops.aten
    factors = (aten.linalg_cholesky, aten.linalg_ldl_factor)
    kept = (aten.linalg_inv, aten.inverse, aten.linalg_solve, *factors)
    for whole in (each.default for each in kept):
        table.pop(whole, None)


def _inverse(importer: Importer, node: fx.Node) -> relax.Expr:
    x = importer.value(node.args[0])
    *lead, size, _ = shape_of(x)
    ones = np.broadcast_to(np.eye(size), [*lead, size, size]).astype(dtype_of(x))
    return _solved(importer, x, relax.const(ones, dtype_of(x)))


def _solution(importer: Importer, node: fx.Node) -> relax.Expr:
    """Right sides are vectors where they are as many as matrices, or one alone."""
    x, right, left = arguments(importer, node, "A", "B", "left")
    emit = importer.emit
    shape, given = shape_of(x), shape_of(right)
    vectors = len(given) == 1 or given == shape[:-1]
    if vectors:
        right = emit(op.expand_dims(right, -1))
    lead = list(np.broadcast_shapes(shape[:-2], shape_of(right)[:-2]))
    x, right = (emit(op.broadcast_to(one, lead + shape_of(one)[-2:])) for one in (x, right))
    turned = [*range(len(lead)), len(lead) + 1, len(lead)]
    if not left:
        x, right = (emit(op.permute_dims(one, turned)) for one in (x, right))
    found = _solved(importer, x, right)
    found = found if left else emit(op.permute_dims(found, turned))
    return emit(op.squeeze(found, [-1])) if vectors else found


def _solved(importer: Importer, x: relax.Expr, right: relax.Expr) -> relax.Expr:
    if shape_of(x)[-1] > _LARGEST:
        return solution(importer, x, right)
    return _eliminated(importer, x, right)[0]


def _determinant(importer: Importer, node: fx.Node) -> tuple[Any, ...]:
    """Only the first of three results is made."""
    x = importer.value(node.args[0])
    if shape_of(x)[-1] > _LARGEST:
        return determinant(importer, x), None, None
    return _eliminated(importer, x, None)[1], None, None


def _cholesky(importer: Importer, node: fx.Node) -> relax.Expr:
    """Column by column: what is left of one, over the root of its element on the diagonal."""
    x, upper = arguments(importer, node, "self", "upper")
    emit, kind = importer.emit, dtype_of(x)
    *lead, size, _ = shape_of(x)
    rank = len(lead)
    order = [*range(rank), rank + 1, rank]
    if size > _LARGEST:
        lower, _ = lower_root(importer, emit(op.permute_dims(x, order)) if upper else x)
        return emit(op.permute_dims(lower, order)) if upper else lower
    rows = np.arange(size).reshape(*[1] * rank, size, 1)
    done: list[relax.Expr] = []
    for step in range(size):
        left = emit(op.strided_slice(x, [rank + 1], [step], [step + 1]))
        for column in done:
            mine = emit(op.strided_slice(column, [rank], [step], [step + 1]))
            left = emit(op.subtract(left, emit(op.multiply(column, mine))))
        root = emit(op.sqrt(emit(op.strided_slice(left, [rank], [step], [step + 1]))))
        below = relax.const(rows >= step, "bool")
        left = emit(op.where(below, emit(op.divide(left, root)), relax.const(0.0, kind)))
        done.append(left)
    lower = emit(op.concat(done, rank + 1)) if size > 1 else done[0]
    return emit(op.permute_dims(lower, order)) if upper else lower


def _bilinear(importer: Importer, node: fx.Node) -> relax.Expr:
    """Products of three tensors that are spread along each other's axes, summed over some."""
    emit, factors = importer.emit, []
    names = [("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")]
    for name, axes in names:
        factor, added = arguments(importer, node, name, axes)
        for axis in sorted(added):
            factor = emit(op.expand_dims(factor, axis))
        factors.append(factor)
    one, two, three = factors
    product = emit(op.multiply(emit(op.multiply(one, two)), three))
    (summed,) = arguments(importer, node, "sumdim")
    return emit(op.sum(product, list(summed)))


def _eliminated(
    importer: Importer, x: relax.Expr, right: relax.Expr | None
) -> tuple[relax.Expr, relax.Expr]:
    """The right sides of a system when the left ones have become ones, and the determinant."""
    emit, kind = importer.emit, dtype_of(x)
    *lead, size, _ = shape_of(x)
    rank = len(lead)
    whole = x if right is None else emit(op.concat([x, right], rank + 1))
    width = shape_of(whole)[-1]
    rows = relax.const(np.arange(size, dtype="int64").reshape(*[1] * rank, size, 1), "int64")
    zero = relax.const(0.0, kind)
    volume = emit(op.ones([*lead, 1, 1], kind))

    def cut(value: relax.Expr, axis: int, begin: int, end: int) -> relax.Expr:
        return emit(op.strided_slice(value, [axis], [begin], [end]))

    for step in range(size):
        column = emit(op.abs(cut(cut(whole, rank, step, size), rank + 1, step, step + 1)))
        largest = emit(op.argmax(column, rank, keepdims=True))
        at = emit(op.add(largest, relax.const(step, "int64")))
        chosen = emit(op.equal(rows, at))
        mine = cut(whole, rank, step, step + 1)
        best = emit(op.sum(emit(op.where(chosen, whole, zero)), [rank], keepdims=True))
        pivot = cut(best, rank + 1, step, step + 1)
        stays = emit(op.equal(at, relax.const(step, "int64")))
        signed = emit(op.where(stays, pivot, emit(op.negative(pivot))))
        volume = emit(op.multiply(volume, signed))
        if right is None and step == size - 1:
            break
        # Without a pivot there is no inverse, but a determinant.
        divisor = pivot
        if right is None:
            none = emit(op.equal(pivot, zero))
            divisor = emit(op.where(none, relax.const(1.0, kind), pivot))
        unit = emit(op.divide(best, divisor))
        whole = emit(op.where(chosen, mine, whole))
        factor = cut(whole, rank + 1, step, step + 1)
        less = emit(op.subtract(whole, emit(op.multiply(factor, unit))))
        here = emit(op.equal(rows, relax.const(step, "int64")))
        whole = emit(op.where(here, unit, less))
    determinant = emit(op.reshape(volume, lead))
    return (whole if right is None else cut(whole, rank + 1, size, width)), determinant


MATRICES: dict[str, Callable[[Importer, fx.Node], Any]] = {
    **BY_PROGRAMS,
    "linalg_cholesky.default": _cholesky,
    "linalg_inv.default": _inverse,
    "inverse.default": _inverse,
    "linalg_solve.default": _solution,
    "_trilinear.default": _bilinear,
    "_linalg_det.default": _determinant,
}
"""By the name that the translator has for an operator."""
