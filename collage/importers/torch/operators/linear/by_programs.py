"""Converters of operators that tensor programs compute: factors of matrices, and their systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of
from collage.importers.torch.operators.linear import programs, rotations
from collage.importers.torch.operators.linear.batches import WIDE, Write, computed, flat


def _back(importer: Importer, x: relax.Expr, shape: Sequence[int], dtype: str) -> relax.Expr:
    shaped = importer.emit(op.reshape(x, list(shape)))
    return shaped if dtype_of(shaped) == dtype else importer.emit(op.astype(shaped, dtype))


def _reflections(importer: Importer, node: fx.Node) -> tuple[relax.Expr, ...]:
    x = importer.value(node.args[0])
    *lead, rows, columns = shape_of(x)
    count, batch = min(rows, columns), flat(importer, x, 2)
    number = shape_of(batch)[0]
    wanted = [([number, rows, columns], WIDE), ([number, count], WIDE)]
    found = computed(importer, "geqrf", [batch], wanted, programs.reflections(rows, columns))
    shapes = ([*lead, rows, columns], [*lead, count])
    return tuple(
        _back(importer, one, shape, dtype_of(x)) for one, shape in zip(found, shapes, strict=True)
    )


def _reflected(importer: Importer, node: fx.Node) -> relax.Expr:
    x, factors = importer.value(node.args[0]), importer.value(node.args[1])
    shape, count = shape_of(x), shape_of(factors)[-1]
    rows, columns = shape[-2:]
    if not count:
        unit = np.broadcast_to(np.eye(rows, columns), shape).astype(dtype_of(x))
        return relax.const(unit, dtype_of(x))
    given = [flat(importer, x, 2), flat(importer, factors, 1)]
    wanted = [([shape_of(given[0])[0], rows, columns], WIDE)]
    write = programs.reflected(rows, columns, count)
    (found,) = computed(importer, "householder_product", given, wanted, write)
    return _back(importer, found, shape, dtype_of(x))


def _eliminated(importer: Importer, x: relax.Expr, pivot: bool = True) -> list[relax.Expr]:
    """Of a batch: factors, exchanges, and which pivot is the first zero."""
    number, rows, columns = shape_of(x)
    wanted = [
        ([number, rows, columns], WIDE),
        ([number, min(rows, columns)], "int32"),
        ([number], "int32"),
    ]
    write = programs.eliminated(rows, columns, pivot)
    return computed(importer, "lu_factor", [x], wanted, write)


def _factors(importer: Importer, node: fx.Node) -> tuple[relax.Expr, ...]:
    x, pivot = arguments(importer, node, "A", "pivot")
    *lead, rows, columns = shape_of(x)
    lu, exchanged, info = _eliminated(importer, flat(importer, x, 2), bool(pivot))
    return (
        _back(importer, lu, [*lead, rows, columns], dtype_of(x)),
        _back(importer, exchanged, [*lead, min(rows, columns)], "int32"),
        _back(importer, info, lead, "int32"),
    )


def _ordered(importer: Importer, exchanged: relax.Expr, rows: int) -> relax.Expr:
    number, count = shape_of(exchanged)
    write = programs.ordered(count, rows)
    return computed(importer, "row_order", [exchanged], [([number, rows], "int64")], write)[0]


def _order(importer: Importer, node: fx.Node) -> relax.Expr:
    exchanged, rows = arguments(importer, node, "exchanged", "rows")
    found = _ordered(importer, flat(importer, exchanged, 1), int(rows))
    return _back(importer, found, [*shape_of(exchanged)[:-1], int(rows)], "int64")


def solution(importer: Importer, x: relax.Expr, right: relax.Expr) -> relax.Expr:
    """The solution of square systems.

    Parameters
    ----------
    importer : Importer
        Binds expressions.
    x, right : relax.Expr
        Matrices, as many as there are right sides.

    Returns
    -------
    relax.Expr
        Shaped as the right sides.
    """
    size, columns = shape_of(right)[-2:]
    lu, exchanged, _ = _eliminated(importer, flat(importer, x, 2))
    given = [lu, _ordered(importer, exchanged, size), flat(importer, right, 2)]
    wanted = [([shape_of(lu)[0], size, columns], WIDE)]
    (found,) = computed(importer, "lu_solve", given, wanted, programs.solved(size, columns))
    return _back(importer, found, shape_of(right), dtype_of(right))


def determinant(importer: Importer, x: relax.Expr) -> relax.Expr:
    """The determinants of square matrices.

    Parameters
    ----------
    importer : Importer
        Binds expressions.
    x : relax.Expr
        Matrices.

    Returns
    -------
    relax.Expr
        A number for each.
    """
    *lead, size, _ = shape_of(x)
    lu, exchanged, _ = _eliminated(importer, flat(importer, x, 2))
    wanted = [([shape_of(lu)[0]], WIDE)]
    (found,) = computed(importer, "volume", [lu, exchanged], wanted, programs.volume(size))
    return _back(importer, found, lead, dtype_of(x))


def lower_root(importer: Importer, x: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """Cholesky's lower factors, and which minor of each matrix is the first not positive.

    Parameters
    ----------
    importer : Importer
        Binds expressions.
    x : relax.Expr
        Symmetric matrices, of which the lower triangle is read.

    Returns
    -------
    tuple of (relax.Expr, relax.Expr)
        Matrices, and a number of int32 for each: 0 where all minors are positive.
    """
    *lead, size, _ = shape_of(x)
    batch = flat(importer, x, 2)
    wanted = [(shape_of(batch), WIDE), (shape_of(batch)[:1], "int32")]
    found, info = computed(importer, "cholesky", [batch], wanted, programs.rooted(size))
    return (
        _back(importer, found, shape_of(x), dtype_of(x)),
        _back(importer, info, lead, "int32"),
    )


def _minor(importer: Importer, node: fx.Node) -> relax.Expr:
    return lower_root(importer, importer.value(node.args[0]))[1]


def _triangular(importer: Importer, node: fx.Node) -> relax.Expr:
    x, right, upper, left, unit = arguments(
        importer, node, "self", "B", "upper", "left", "unitriangular"
    )
    emit = importer.emit
    lead = list(np.broadcast_shapes(shape_of(x)[:-2], shape_of(right)[:-2]))
    x, right = (emit(op.broadcast_to(one, lead + shape_of(one)[-2:])) for one in (x, right))
    if not left:
        order = [*range(len(lead)), len(lead) + 1, len(lead)]
        x, right = (emit(op.permute_dims(one, order)) for one in (x, right))
        upper = not upper
    size, columns = shape_of(right)[-2:]
    given = [flat(importer, x, 2), flat(importer, right, 2)]
    write = programs.substituted(size, columns, bool(upper), bool(unit))
    wanted = [(shape_of(given[1]), WIDE)]
    (found,) = computed(importer, "solve_triangular", given, wanted, write)
    found = _back(importer, found, shape_of(right), dtype_of(right))
    return found if left else emit(op.permute_dims(found, order))


def _jacobi(
    name: str, write_of: Callable[[int, int, float], Write]
) -> Callable[[Importer, fx.Node], tuple[relax.Expr, ...]]:
    def convert(importer: Importer, node: fx.Node) -> tuple[relax.Expr, ...]:
        x, exact = arguments(importer, node, "x", "exact")
        *lead, rows, columns = shape_of(x)
        batch = flat(importer, x, 2)
        number = shape_of(batch)[0]
        wanted = [([number, rows, columns], WIDE), ([number, columns, columns], WIDE)]
        one, two = computed(importer, name, [batch], wanted, write_of(rows, columns, exact))
        return (
            _back(importer, one, [*lead, rows, columns], WIDE),
            _back(importer, two, [*lead, columns, columns], WIDE),
        )

    return convert


BY_PROGRAMS: dict[str, Callable[[Importer, fx.Node], Any]] = {
    "geqrf.default": _reflections,
    "linalg_householder_product.default": _reflected,
    "linalg_lu_factor_ex.default": _factors,
    "linalg_solve_triangular.default": _triangular,
    "order_of_rows.default": _order,
    "first_bad_minor.default": _minor,
    "symmetric_values.default": _jacobi(
        "eigh", lambda rows, _, exact: rotations.symmetric_values(rows, exact)
    ),
    "straightened.default": _jacobi("svd", rotations.straightened),
}
"""By the name that the translator has for an operator."""
