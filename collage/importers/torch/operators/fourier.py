"""Fourier transforms of exported programs, of which complex tensors have a last axis of parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.backends.relax.fourier import LONGEST, transform_matrix
from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of
from collage.importers.torch.operators.errors import RefusedError


def _transform(
    importer: Importer, x: relax.Expr, axis: int, matrix: np.ndarray, parts: int
) -> relax.Expr:
    """A matrix of :func:`transform_matrix` applied along an axis.

    Parameters
    ----------
    importer : Importer
        Binds expressions.
    x : relax.Expr
        Real with ``parts`` 1, else with a last axis of both parts.
    axis : int
        Of the values, counted without that of the parts.
    matrix : ndarray
        (place in, part in, place out, part out).
    parts : int
        That come in.

    Returns
    -------
    relax.Expr
        With a last axis of as many parts as come out, or without where it is one.
    """
    emit, dtype, shape = importer.emit, dtype_of(x), shape_of(x)
    rank = len(shape) - (parts == 2)
    order = [a for a in range(rank) if a != axis] + [axis]
    whole = [*order, rank] if parts == 2 else order
    turned = x if whole == list(range(len(shape))) else emit(op.permute_dims(x, whole))
    lead = [shape[a] for a in order[:-1]]
    places, _, bins, out = matrix.shape
    rows = matrix[:, :parts].reshape(places * parts, bins * out)
    flat = emit(op.reshape(turned, [*lead, places * parts]))
    product = emit(op.matmul(flat, relax.const(rows.astype(dtype), dtype)))
    result = emit(op.reshape(product, [*lead, bins, *([2] if out == 2 else [])]))
    back = [order.index(a) for a in range(rank)] + ([rank] if out == 2 else [])
    return result if back == list(range(len(back))) else emit(op.permute_dims(result, back))


def _scaled(length: int, bins: int, how: int, *, inverse: bool, real_back: bool) -> np.ndarray:
    """A transform's matrix, divided by nothing, by the root of the length, or by the length."""
    if length > LONGEST:
        raise RefusedError(
            f"a transform of length {length}; up to {LONGEST} are computed as a product"
        )
    matrix = transform_matrix(length, bins, inverse=inverse, real_back=real_back)
    share = {0: 1.0, 1: length**-0.5, 2: 1.0 / length}[how]
    whole: np.ndarray = matrix * (length * share if inverse else share)
    return whole


def _axes(dims: Sequence[int], rank: int) -> list[int]:
    return [int(axis) % rank for axis in dims]


def _from_real(importer: Importer, node: fx.Node) -> relax.Expr:
    x, dims, how, onesided = arguments(importer, node, "self", "dim", "normalization", "onesided")
    shape = shape_of(x)
    *others, last = _axes(dims, len(shape))
    length = shape[last]
    bins = length // 2 + 1 if onesided else length
    x = _transform(
        *(importer, x, last, _scaled(length, bins, how, inverse=False, real_back=False), 1)
    )
    return _all(importer, x, others, how, inverse=False)


def _to_real(importer: Importer, node: fx.Node) -> relax.Expr:
    x, dims, how, length = arguments(
        importer, node, "self", "dim", "normalization", "last_dim_size"
    )
    *others, last = _axes(dims, len(shape_of(x)) - 1)
    x = _all(importer, x, others, how, inverse=True)
    bins = shape_of(x)[last]
    return _transform(
        *(importer, x, last, _scaled(length, bins, how, inverse=True, real_back=True), 2)
    )


def _all_complex(importer: Importer, node: fx.Node) -> relax.Expr:
    x, dims, how, forward = arguments(importer, node, "self", "dim", "normalization", "forward")
    return _all(importer, x, _axes(dims, len(shape_of(x)) - 1), how, inverse=not forward)


def _all(
    importer: Importer, x: relax.Expr, axes: Sequence[int], how: int, *, inverse: bool
) -> relax.Expr:
    for axis in axes:
        length = shape_of(x)[axis]
        matrix = _scaled(length, length, how, inverse=inverse, real_back=False)
        x = _transform(importer, x, axis, matrix, 2)
    return x


FOURIER: dict[str, Callable[[Any, fx.Node], Any]] = {
    "_fft_r2c.default": _from_real,
    "_fft_c2r.default": _to_real,
    "_fft_c2c.default": _all_complex,
}
"""By the name that the translator has for an operator."""
