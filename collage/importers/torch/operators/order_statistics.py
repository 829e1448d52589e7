"""Medians and modes, with where they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import fx
from tvm import relax
from tvm.relax import op

from collage.backends.relax.kept_whole.order_statistics import (
    MEDIAN,
    MODE,
    NUMBERS_MEDIAN,
    order_statistic,
)
from collage.importers.torch.operators.arguments import Importer, arguments, shape_of


def _of_lines(which: str) -> Callable[[Importer, fx.Node], tuple[relax.Expr, relax.Expr]]:
    def convert(importer: Importer, node: fx.Node) -> tuple[relax.Expr, relax.Expr]:
        x, dim, keep = arguments(importer, node, "self", "dim", "keepdim")
        shape, emit = shape_of(x), importer.emit
        if not shape:
            return x, emit(op.zeros([], "int64"))
        axis = int(dim) % len(shape)
        pair = emit(order_statistic(x, which, axis))
        parts = [emit(relax.TupleGetItem(pair, i)) for i in range(2)]
        if not keep:
            parts = [emit(op.squeeze(part, [axis])) for part in parts]
        return parts[0], parts[1]

    return convert


def _of_all(which: str) -> Callable[[Importer, fx.Node], relax.Expr]:
    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        (x,) = arguments(importer, node, "self")
        emit = importer.emit
        flat = emit(op.reshape(x, [math.prod(shape_of(x))]))
        found = emit(relax.TupleGetItem(emit(order_statistic(flat, which, 0)), 0))
        return emit(op.reshape(found, []))

    return convert


ORDER_STATISTICS: dict[str, Callable[[Importer, fx.Node], Any]] = {
    "median.default": _of_all(MEDIAN),
    "median.dim": _of_lines(MEDIAN),
    "nanmedian.default": _of_all(NUMBERS_MEDIAN),
    "nanmedian.dim": _of_lines(NUMBERS_MEDIAN),
    "mode.default": _of_lines(MODE),
}
"""By the name that the translator has for an operator."""
