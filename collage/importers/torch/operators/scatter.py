"""Scattered sums, products, extremes and means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of

Scattered = Callable[[relax.Expr, relax.Expr, str], relax.Expr]
"""Of the data, of what is scattered into it, and of how the two are combined."""

_KINDS = {None: "add", "sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter(importer: Importer, node: fx.Node) -> relax.Expr:
    """``scatter_add`` and ``scatter_reduce``: a source may be larger than its indices."""
    x, dim, index, source, reduce, included = arguments(
        importer, node, "self", "dim", "index", "src", "reduce", "include_self"
    )
    emit, extents = importer.emit, shape_of(index)
    if 0 in extents:
        return x
    if dtype_of(x) == "bool" and reduce == "mean":
        raise TypeError("a mean of truth values; convert them before")
    truth = dtype_of(x) == "bool"
    if truth:
        x, source = (emit(op.astype(each, "int32")) for each in (x, source))
    if shape_of(source) != extents:
        axes = list(range(len(extents)))
        source = emit(op.strided_slice(source, axes, [0] * len(axes), extents))
    scattered = _rows(importer, node, dim, shape_of(x), extents) or _elements(index, dim)
    if included is not False and reduce != "mean":
        found = emit(scattered(x, source, _KINDS[reduce]))
        return emit(op.astype(found, "bool")) if truth else found
    none = emit(op.zeros(shape_of(x), "int32"))
    ones = emit(op.ones(extents, "int32"))
    times = emit(scattered(none, ones, "add"))
    if included is False:
        met = emit(op.greater(times, relax.const(0, "int32")))
        x = emit(op.where(met, _neutral(reduce, dtype_of(x)), x))
    found = emit(scattered(x, source, _KINDS[reduce]))
    if reduce != "mean":
        return emit(op.astype(found, "bool")) if truth else found
    if included is not False:
        times = emit(op.add(times, relax.const(1, "int32")))
    kind = dtype_of(found)
    count = emit(op.astype(emit(op.maximum(times, relax.const(1, "int32"))), kind))
    return emit((op.divide if "float" in kind else op.floor_divide)(found, count))


def _elements(index: relax.Expr, dim: int) -> Scattered:
    return lambda x, source, kind: op.scatter_elements(x, index, source, dim, kind)


def _rows(
    importer: Importer, node: fx.Node, dim: int, shape: list[int], extents: list[int]
) -> Scattered | None:
    """Whole rows of the first axis, where one index was expanded to all elements of each: the
    messages along a graph's edges; and single elements of the only axis."""
    index = node.args[2] if len(node.args) > 2 else node.kwargs["index"]
    if len(shape) == 1 and isinstance(index, fx.Node):
        single = importer.emit(op.reshape(importer.value(index), [extents[0], 1]))
        return lambda x, source, kind: op.scatter_nd(x, single, source, kind)
    expanded = isinstance(index, fx.Node) and str(index.target) == "aten.expand.default"
    if not expanded or dim % len(shape):
        return None
    source = index.args[0]
    own = list(source.meta["val"].shape)
    if shape[1:] != extents[1:] or own != [extents[0], *[1] * (len(shape) - 1)]:
        return None
    places = importer.emit(op.reshape(importer.value(source), [extents[0], 1]))
    return lambda x, source, kind: op.scatter_nd(x, places, source, kind)


def _neutral(reduce: str, kind: str) -> relax.Expr:
    """What changes nothing."""
    if reduce in ("amax", "amin"):
        limits: Any = np.iinfo(kind) if "float" not in kind else None
        low, high = (-np.inf, np.inf) if limits is None else (limits.min, limits.max)
        return relax.const(low if reduce == "amax" else high, kind)
    return relax.const(1 if reduce == "prod" else 0, kind)


SCATTERS: dict[str, Callable[[Importer, fx.Node], Any]] = {
    "scatter_add.default": _scatter,
    "scatter_reduce.two": _scatter,
}
"""By the name that the translator has for an operator."""
