"""Scattered sums, products, extremes and means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of

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
    if included is not False and reduce != "mean":
        found = emit(op.scatter_elements(x, index, source, dim, _KINDS[reduce]))
        return emit(op.astype(found, "bool")) if truth else found
    none = emit(op.zeros(shape_of(x), "int32"))
    ones = emit(op.ones(extents, "int32"))
    times = emit(op.scatter_elements(none, index, ones, dim, "add"))
    if included is False:
        met = emit(op.greater(times, relax.const(0, "int32")))
        x = emit(op.where(met, _neutral(reduce, dtype_of(x)), x))
    found = emit(op.scatter_elements(x, index, source, dim, _KINDS[reduce]))
    if reduce != "mean":
        return emit(op.astype(found, "bool")) if truth else found
    if included is not False:
        times = emit(op.add(times, relax.const(1, "int32")))
    kind = dtype_of(found)
    count = emit(op.astype(emit(op.maximum(times, relax.const(1, "int32"))), kind))
    return emit((op.divide if "float" in kind else op.floor_divide)(found, count))


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
