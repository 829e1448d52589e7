"""Jacobi's methods as tensor programs: rotations of two columns at a time, until none is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

_SWEEPS = 40
"""About ten are needed; more are made only where values are no numbers."""


def _sweeps(changed: Any, exact: float, size: int, pair: Callable[[Any, Any, Any], None]) -> None:
    """Every pair of columns in turn, until nothing changes."""
    round_ = cell("int32")
    round_[0] = tirx.const(0, "int32")
    changed[0] = tirx.const(1, "int32")
    with T.While(tirx.all(changed[0] > 0, round_[0] < _SWEEPS)), T.seq_scope():
        changed[0] = tirx.const(0, "int32")
        round_[0] = round_[0] + 1
        with T.serial(0, size) as p, T.serial(p + 1, size) as q, T.seq_scope():
            pair(p, q, real(exact))


def _angle(cosine: Any, sine: Any, twice: Any, apart: Any) -> None:
    """The rotation that makes ``twice / 2`` vanish between two that lie ``apart``."""
    slope = cell()
    # Of the two, the smaller one.
    slope[0] = apart / twice
    size = tirx.abs(slope[0]) + tirx.sqrt(slope[0] * slope[0] + real(1))
    slope[0] = tirx.Select(slope[0] < real(0), real(-1), real(1)) / size
    cosine[0] = real(1) / tirx.sqrt(slope[0] * slope[0] + real(1))
    sine[0] = slope[0] * cosine[0]


def _turned(x: Any, b: Any, count: int, p: Any, q: Any, cosine: Any, sine: Any) -> None:
    """Two columns, turned in their plane."""
    kept = cell()
    with T.serial(0, count) as i, T.seq_scope():
        kept[0] = x[b, i, p]
        x[b, i, p] = cosine[0] * kept[0] - sine[0] * x[b, i, q]
        x[b, i, q] = sine[0] * kept[0] + cosine[0] * x[b, i, q]


def symmetric_values(size: int, exact: float) -> Write:
    """The program of Jacobi's method: a diagonal matrix, and the columns that belong to it.

    Parameters
    ----------
    size : int
        Rows of a symmetric matrix.
    exact : float
        What an element beside the diagonal may be, relative to those of its rows on it.

    Returns
    -------
    callable
        The loops for one matrix.
    """

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (x,), (a, vectors) = ins, outs
        cosine, sine, kept, largest = (cell() for _ in range(4))
        changed = cell("int32")
        copied(x, a, b, size, size)
        unit_matrix(vectors, b, size, size)
        largest[0] = real(0)
        with T.serial(0, size) as i, T.serial(0, size) as j:
            largest[0] = tirx.max(largest[0], tirx.abs(a[b, i, j]))

        def pair(p: Any, q: Any, limit: Any) -> None:
            with T.If(tirx.abs(a[b, p, q]) > limit * largest[0]), T.Then(), T.seq_scope():
                changed[0] = tirx.const(1, "int32")
                _angle(cosine, sine, real(2) * a[b, p, q], a[b, q, q] - a[b, p, p])
                _turned(a, b, size, p, q, cosine, sine)
                with T.serial(0, size) as i, T.seq_scope():
                    kept[0] = a[b, p, i]
                    a[b, p, i] = cosine[0] * kept[0] - sine[0] * a[b, q, i]
                    a[b, q, i] = sine[0] * kept[0] + cosine[0] * a[b, q, i]
                _turned(vectors, b, size, p, q, cosine, sine)

        _sweeps(changed, exact, size, pair)

    return write


def straightened(rows: int, columns: int, exact: float) -> Write:
    """The program of Jacobi's one-sided method: columns turned until all are at right angles.

    Parameters
    ----------
    rows, columns : int
        Of a matrix.
    exact : float
        What the cosine of an angle may be.

    Returns
    -------
    callable
        The loops for one matrix.
    """

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (x,), (a, vectors) = ins, outs
        cosine, sine, one, two, both = (cell() for _ in range(5))
        changed = cell("int32")
        copied(x, a, b, rows, columns)
        unit_matrix(vectors, b, columns, columns)

        def pair(p: Any, q: Any, limit: Any) -> None:
            for total in (one, two, both):
                total[0] = real(0)
            with T.serial(0, rows) as i, T.seq_scope():
                one[0] = one[0] + a[b, i, p] * a[b, i, p]
                two[0] = two[0] + a[b, i, q] * a[b, i, q]
                both[0] = both[0] + a[b, i, p] * a[b, i, q]
            wide = tirx.abs(both[0]) > limit * tirx.sqrt(one[0]) * tirx.sqrt(two[0])
            with T.If(wide), T.Then(), T.seq_scope():
                changed[0] = tirx.const(1, "int32")
                _angle(cosine, sine, real(2) * both[0], two[0] - one[0])
                _turned(a, b, rows, p, q, cosine, sine)
                _turned(vectors, b, columns, p, q, cosine, sine)

        _sweeps(changed, exact, columns, pair)

    return write
