"""Tensor programs that take matrices apart, a batch at a time.

Householder's reflections and Gauss's elimination: loops over elements that depend on each other,
for which no backend has a library call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from collage.importers.torch.operators.linear.batches import (
    Write,
    cell,
    copied,
    real,
    unit_matrix,
)


def reflections(rows: int, columns: int) -> Write:
    """The program of ``geqrf``: vectors of reflections below the diagonal, and their factors.

    Parameters
    ----------
    rows, columns : int
        Of a matrix.

    Returns
    -------
    callable
        The loops for one matrix.
    """

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (x,), (a, factors) = ins, outs
        size, head, factor, total = (cell() for _ in range(4))
        copied(x, a, b, rows, columns)
        with T.serial(0, min(rows, columns)) as j, T.seq_scope():
            size[0] = real(0)
            with T.serial(j + 1, rows) as i:
                size[0] = size[0] + a[b, i, j] * a[b, i, j]
            factors[b, j] = real(0)
            with T.If(size[0] != real(0)), T.Then(), T.seq_scope():
                head[0] = a[b, j, j]
                size[0] = tirx.sqrt(head[0] * head[0] + size[0])
                # Away from the element that is there, as LAPACK turns it.
                size[0] = tirx.Select(head[0] < real(0), size[0], -size[0])
                factor[0] = (size[0] - head[0]) / size[0]
                factors[b, j] = factor[0]
                with T.serial(j + 1, rows) as i:
                    a[b, i, j] = a[b, i, j] / (head[0] - size[0])
                a[b, j, j] = size[0]
                with T.serial(j + 1, columns) as c, T.seq_scope():
                    _reflect(a, b, c, (a, j, rows), factor[0], total)

    return write


def _reflect(
    into: Any, b: Any, c: Any, reflection: tuple[Any, Any, int], factor: Any, total: Any
) -> None:
    """Turn column ``c`` of a matrix by the vector below ``j`` in column ``j`` of another one."""
    a, j, rows = reflection
    total[0] = into[b, j, c]
    with T.serial(j + 1, rows) as i:
        total[0] = total[0] + a[b, i, j] * into[b, i, c]
    total[0] = total[0] * factor
    into[b, j, c] = into[b, j, c] - total[0]
    with T.serial(j + 1, rows) as i:
        into[b, i, c] = into[b, i, c] - a[b, i, j] * total[0]


def reflected(rows: int, columns: int, count: int) -> Write:
    """The program of ``householder_product``: the first columns of the product of reflections.

    Parameters
    ----------
    rows, columns : int
        Of a matrix.
    count : int
        Of reflections.

    Returns
    -------
    callable
        The loops for one matrix.
    """

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (a, factors), (q,) = ins, outs
        total = cell()
        unit_matrix(q, b, rows, columns)
        with T.serial(0, count) as behind, T.serial(0, columns) as c, T.seq_scope():
            j = count - 1 - behind
            _reflect(q, b, c, (a, j, rows), factors[b, j], total)

    return write


def eliminated(rows: int, columns: int, pivot: bool) -> Write:
    """The program of ``lu_factor_ex``: both factors in one matrix, rows exchanged, the first zero.

    Parameters
    ----------
    rows, columns : int
        Of a matrix.
    pivot : bool
        Whether the largest element of a column is looked for.

    Returns
    -------
    callable
        The loops for one matrix.
    """

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (x,), (a, exchanged, info) = ins, outs
        best, kept = cell("int32"), cell()
        copied(x, a, b, rows, columns)
        info[b] = tirx.const(0, "int32")
        with T.serial(0, min(rows, columns)) as j, T.seq_scope():
            best[0] = j
            if pivot:
                with T.serial(j + 1, rows) as i:
                    larger = tirx.abs(a[b, i, j]) > tirx.abs(a[b, best[0], j])
                    best[0] = tirx.Select(larger, i, best[0])
                with T.serial(0, columns) as c, T.seq_scope():
                    kept[0] = a[b, j, c]
                    a[b, j, c] = a[b, best[0], c]
                    a[b, best[0], c] = kept[0]
            exchanged[b, j] = best[0] + 1
            none = a[b, j, j] == real(0)
            info[b] = tirx.Select(tirx.all(none, info[b] == 0), j + 1, info[b])
            regular = a[b, j, j] != real(0)
            with T.If(regular), T.Then(), T.serial(j + 1, rows) as i, T.seq_scope():
                a[b, i, j] = a[b, i, j] / a[b, j, j]
                with T.serial(j + 1, columns) as c:
                    a[b, i, c] = a[b, i, c] - a[b, i, j] * a[b, j, c]

    return write


def ordered(count: int, rows: int) -> Write:
    """The program that turns exchanges of rows, counted from 1, into the order of rows.

    Parameters
    ----------
    count : int
        Of exchanges.
    rows : int
        Of a matrix.

    Returns
    -------
    callable
        The loops for one matrix.
    """

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (exchanged,), (order,) = ins, outs
        kept, other = cell("int64"), cell("int32")
        with T.serial(0, rows) as i:
            order[b, i] = tirx.Cast("int64", i)
        with T.serial(0, count) as j, T.seq_scope():
            other[0] = exchanged[b, j] - 1
            kept[0] = order[b, j]
            order[b, j] = order[b, other[0]]
            order[b, other[0]] = kept[0]

    return write


def substituted(size: int, columns: int, upper: bool, unit: bool) -> Write:
    """The program that solves a triangular system, row by row.

    Parameters
    ----------
    size, columns : int
        Rows of the system, and its right sides.
    upper : bool
        Which of the triangles is read.
    unit : bool
        Whether the diagonal is all ones.

    Returns
    -------
    callable
        The loops for one matrix.
    """

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (a, right), (x,) = ins, outs
        total = cell()
        with T.serial(0, size) as step, T.serial(0, columns) as c, T.seq_scope():
            i = size - 1 - step if upper else step
            total[0] = right[b, i, c]
            with T.serial(i + 1 if upper else 0, size if upper else i) as k:
                total[0] = total[0] - a[b, i, k] * x[b, k, c]
            x[b, i, c] = total[0] if unit else total[0] / a[b, i, i]

    return write


def solved(size: int, columns: int) -> Write:
    """The program that solves a system of which :func:`eliminated` made factors.

    Parameters
    ----------
    size, columns : int
        Rows of the system, and its right sides.

    Returns
    -------
    callable
        The loops for one matrix.
    """

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (a, order, right), (x,) = ins, outs
        total, row = cell(), cell("int64")
        with T.serial(0, size) as i, T.seq_scope():
            row[0] = order[b, i]
            with T.serial(0, columns) as c, T.seq_scope():
                total[0] = right[b, row[0], c]
                with T.serial(0, i) as k:
                    total[0] = total[0] - a[b, i, k] * x[b, k, c]
                x[b, i, c] = total[0]
        with T.serial(0, size) as step, T.serial(0, columns) as c, T.seq_scope():
            i = size - 1 - step
            total[0] = x[b, i, c]
            with T.serial(i + 1, size) as k:
                total[0] = total[0] - a[b, i, k] * x[b, k, c]
            x[b, i, c] = total[0] / a[b, i, i]

    return write


def volume(size: int) -> Write:
    """The program that multiplies the diagonal of such factors, and counts exchanges."""

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (a, exchanged), (found,) = ins, outs
        found[b] = real(1)
        with T.serial(0, size) as i:
            signed = tirx.Select(exchanged[b, i] == i + 1, a[b, i, i], -a[b, i, i])
            found[b] = found[b] * signed

    return write


def rooted(size: int) -> Write:
    """The program of ``cholesky_ex``: the lower factor, and the first minor not positive."""

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (x,), (a, info) = ins, outs
        total = cell()
        info[b] = tirx.const(0, "int32")
        with T.serial(0, size) as j, T.seq_scope():
            with T.serial(0, j) as i:
                a[b, i, j] = real(0)
            with T.serial(j, size) as i, T.seq_scope():
                total[0] = x[b, i, j]
                with T.serial(0, j) as k:
                    total[0] = total[0] - a[b, i, k] * a[b, j, k]
                with T.If(i == j), T.Then(), T.seq_scope():
                    bad = tirx.all(tirx.Not(total[0] > real(0)), info[b] == 0)
                    info[b] = tirx.Select(bad, j + 1, info[b])
                    total[0] = tirx.sqrt(total[0])
                with T.If(i > j), T.Then():
                    total[0] = total[0] / a[b, j, j]
                a[b, i, j] = total[0]

    return write
