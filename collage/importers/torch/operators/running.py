"""Running extremes and sums of exponentials, places in a sorted sequence and by rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.backends.relax.kept_whole.running import running_extreme, running_logsumexp
from collage.backends.relax.kept_whole.search import searchsorted
from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of


def _running_extreme(largest: bool) -> Callable[[Importer, fx.Node], tuple[relax.Expr, ...]]:
    """The extreme up to each place, and where it was last."""

    def convert(importer: Importer, node: fx.Node) -> tuple[relax.Expr, ...]:
        x, dim = arguments(importer, node, "self", "dim")
        shape, kind, emit = shape_of(x), dtype_of(x), importer.emit
        if not shape:
            return x, emit(op.zeros([], "int64"))
        numbers = emit(op.astype(x, "int8")) if kind == "bool" else x
        pair = emit(running_extreme(numbers, dim % len(shape), largest))
        found, where = (emit(relax.TupleGetItem(pair, i)) for i in range(2))
        return emit(op.astype(found, "bool")) if kind == "bool" else found, where

    return convert


def _running_sum_of_exponentials(importer: Importer, node: fx.Node) -> relax.Expr:
    """As a logarithm."""
    x, dim = arguments(importer, node, "self", "dim")
    shape = shape_of(x)
    return importer.emit(running_logsumexp(x, dim % len(shape))) if shape else x


def _search(importer: Importer, node: fx.Node) -> relax.Expr:
    """How many of a sorted row come before each value: what is no number comes last."""
    sequence, values, right, side, sorter = arguments(
        importer, node, "sorted_sequence", "self", "right", "side", "sorter"
    )
    if sorter is not None:
        sequence = importer.emit(op.gather_elements(sequence, sorter, -1))
    return _placed(importer, node, sequence, values, bool(right) or side == "right")


def _bucket(importer: Importer, node: fx.Node) -> relax.Expr:
    values, bounds, right = arguments(importer, node, "self", "boundaries", "right")
    return _placed(importer, node, bounds, values, bool(right))


def _placed(
    importer: Importer, node: fx.Node, sequence: relax.Expr, values: Any, right: bool
) -> relax.Expr:
    if not isinstance(values, relax.Expr):
        values = relax.const(values, dtype_of(sequence))
    kind, asked = str(node.meta["val"].dtype).removeprefix("torch."), shape_of(values)
    whole = values if asked else importer.emit(op.reshape(values, [1]))
    found = importer.emit(searchsorted(sequence, whole, right=right, dtype=kind))
    return found if asked else importer.emit(op.reshape(found, []))


def _repeated(importer: Importer, node: fx.Node) -> relax.Expr:
    """Each place as often as its number says: how many places have ended before."""
    repeats, size = arguments(importer, node, "repeats", "output_size")
    if size is None:
        raise TypeError("the shape of its result depends on data; give output_size")
    emit, kind = importer.emit, dtype_of(repeats)
    ends = emit(op.cumsum(repeats, axis=0))
    numbers = relax.const(np.arange(int(size)).astype(kind).reshape(-1, 1), kind)
    ended = emit(op.less_equal(ends, numbers))
    return emit(op.sum(emit(op.astype(ended, kind)), [1]))


def _smallest(importer: Importer, node: fx.Node) -> tuple[relax.Expr, relax.Expr]:
    """The k-th smallest, and where it is."""
    x, k, dim, keep = arguments(importer, node, "self", "k", "dim", "keepdim")
    emit, shape = importer.emit, shape_of(x)
    axis = dim % len(shape)
    found = emit(op.topk(x, k, axis, ret_type="both", largest=False, dtype="int64"))
    parts = []
    for which in range(2):
        part = emit(relax.TupleGetItem(found, which))
        part = emit(op.strided_slice(part, [axis], [k - 1], [k]))
        parts.append(part if keep else emit(op.squeeze(part, [axis])))
    return parts[0], parts[1]


def _largest(importer: Importer, node: fx.Node) -> relax.Expr:
    """In order also where any would do."""
    x, k, dim, largest = arguments(importer, node, "self", "k", "dim", "largest")
    return importer.emit(
        op.topk(x, k, int(dim), ret_type="both", largest=bool(largest), dtype="int64")
    )


def _sorted(importer: Importer, node: fx.Node) -> tuple[relax.Expr, relax.Expr]:
    """Equal values stay in their order; truth values are sorted as numbers."""
    x, dim, descending = arguments(importer, node, "self", "dim", "descending")
    emit, kind = importer.emit, dtype_of(x)
    numbers = emit(op.astype(x, "int32")) if kind == "bool" else x
    places = emit(op.argsort(numbers, int(dim), bool(descending), "int64"))
    found = emit(op.gather_elements(numbers, places, int(dim)))
    return (emit(op.astype(found, kind)) if kind == "bool" else found), places


RUNNING: dict[str, Callable[[Importer, fx.Node], Any]] = {
    "sort.default": _sorted,
    "sort.stable": _sorted,
    "cummax.default": _running_extreme(largest=True),
    "kthvalue.default": _smallest,
    "topk.default": _largest,
    "repeat_interleave.Tensor": _repeated,
    "cummin.default": _running_extreme(largest=False),
    "logcumsumexp.default": _running_sum_of_exponentials,
    "searchsorted.Tensor": _search,
    "searchsorted.Scalar": _search,
    "bucketize.Tensor": _bucket,
    "bucketize.Scalar": _bucket,
}
"""By the name that the translator has for an operator."""
