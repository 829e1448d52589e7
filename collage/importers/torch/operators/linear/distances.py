"""Distances between two sets of points, of each with each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of
from collage.importers.torch.operators.norms import norm_of

_MOST_POINTS = 25
"""Of more, PyTorch takes Euclidean distances by a product of matrices."""

_MOST_GAPS = 1 << 22
"""As many differences are taken one by one, which is exact where points lie close together."""

_BY_PRODUCT, _NEVER_BY_PRODUCT = 1, 2
"""What ``compute_mode`` asks for, beside by how many points there are."""


def _distances(importer: Importer, node: fx.Node) -> relax.Expr:
    x, y, p, mode = arguments(importer, node, "x1", "x2", "p", "compute_mode")
    shape = [int(extent) for extent in node.meta["val"].shape]
    rows, columns, width = *shape[-2:], shape_of(x)[-1]
    many = mode == _BY_PRODUCT or max(rows, columns) > _MOST_POINTS
    many = many and mode != _NEVER_BY_PRODUCT and math.prod(shape) * width > _MOST_GAPS
    if p == 2 and many:
        return _by_product(importer, x, y)
    gap = importer.emit(
        op.subtract(
            importer.emit(op.expand_dims(x, -2)),
            importer.emit(op.expand_dims(y, -3)),
        )
    )
    return norm_of(importer, gap, p, [-1])


def _by_product(importer: Importer, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """``|x - y|^2 = |x|^2 + |y|^2 - 2 x y``, about the middle of one set: what all points have in
    common would cancel out."""
    emit = importer.emit
    rank, dtype = len(shape_of(y)), dtype_of(x)
    middle = emit(op.mean(y, [-2], True))
    if len(shape_of(x)) < rank:
        x = emit(op.expand_dims(x, list(range(rank - len(shape_of(x))))))
    x, y = (emit(op.subtract(one, middle)) for one in (x, y))
    squares = [emit(op.sum(emit(op.multiply(one, one)), [-1], True)) for one in (x, y)]
    turned = list(range(len(shape_of(y))))
    turned[-2:] = turned[:-3:-1]
    product = emit(op.matmul(x, emit(op.permute_dims(y, turned))))
    total = emit(op.add(squares[0], emit(op.permute_dims(squares[1], turned))))
    found = emit(op.subtract(total, emit(op.multiply(product, relax.const(2, dtype)))))
    return emit(op.sqrt(emit(op.maximum(found, relax.const(0, dtype)))))


DISTANCES: dict[str, Callable[[Importer, fx.Node], Any]] = {"_cdist_forward.default": _distances}
"""By the name that the translator has for an operator."""
