"""Scans, sorts and searches of lines: short and long ones, few and many, along any axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases._case import CudaCase
from collage.backends.relax.kept_whole.order_statistics import (
    MEDIAN,
    MODE,
    NUMBERS_MEDIAN,
    order_statistic,
)
from collage.backends.relax.kept_whole.running import running_extreme, running_logsumexp
from collage.backends.relax.kept_whole.search import searchsorted
from collage.testing.graphs import Emit, graph

RTOL = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5, "float64": 1e-12}

_SCANNED: Sequence[tuple[tuple[int, ...], int, str]] = (
    ((64, 1000), 1, "float16"),
    ((1000, 64), 0, "bfloat16"),
    ((512, 16), 1, "float32"),
    ((64, 33), 1, "float16"),
    ((8, 128, 128), 1, "float64"),
    ((1, 8400), 1, "float32"),
    ((1, 40000), 1, "float16"),
    ((30000, 3), 0, "float32"),
)
"""Several lines in a warp, a warp for each, a block, and many blocks."""

_SORTED: Sequence[tuple[tuple[int, ...], int, int, str]] = (
    ((64, 1000), 1, 125, "float16"),
    ((1000, 64), 0, 5, "float32"),
    ((1, 8400), 1, 300, "bfloat16"),
    ((3, 12000), 1, 40, "float32"),
    ((2, 900, 5), 1, 90, "float64"),
)

_CHOSEN: Sequence[tuple[tuple[int, ...], int, str]] = (
    ((1, 50257), 50, "float16"),
    ((2, 30000), 9, "float32"),
    ((1, 128256), 40, "bfloat16"),
)
"""Too long for one block."""

_SEARCHED: Sequence[tuple[tuple[int, ...], tuple[int, ...], str]] = (
    ((1000,), (64, 1000), "float16"),
    ((64, 200), (64, 100), "float32"),
)


def cases() -> list[CudaCase]:
    """Each with several operators on the same lines."""
    return list(_cases())


def _cases() -> Iterator[CudaCase]:
    def case(name: str, module: tvm.IRModule, dtype: str) -> CudaCase:
        return CudaCase(f"{name}-{dtype}", "tvm", "", module, rtol=RTOL[dtype])

    def named(kind: str, shape: tuple[int, ...], axis: int) -> str:
        return f"{kind}-{'x'.join(map(str, shape))}-axis{axis}"

    for shape, axis, dtype in _SCANNED:
        yield case(named("scans", shape, axis), _scans(shape, axis, dtype), dtype)
    for shape, axis, taken, dtype in _SORTED:
        module = _sorts(shape, axis, taken, dtype)
        yield case(named(f"sorts-{taken}", shape, axis), module, dtype)
        yield case(named("statistics", shape, axis), _statistics(shape, axis, dtype), dtype)
    for shape, taken, dtype in _CHOSEN:
        yield case(named(f"first-{taken}", shape, 1), _first(shape, taken, dtype), dtype)
    for rows, asked, dtype in _SEARCHED:
        yield case(named("searches", rows, len(rows) - 1), _searches(rows, asked, dtype), dtype)


def _scans(shape: tuple[int, ...], axis: int, dtype: str) -> tvm.IRModule:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        pairs = [emit(running_extreme(x, axis, largest)) for largest in (True, False)]
        parts = [emit(relax.TupleGetItem(pair, i)) for pair in pairs for i in (0, 1)]
        sums = [op.cumsum(x, axis), op.cumsum(x, axis, exclusive=True), op.cumprod(x, axis)]
        return relax.Tuple([*parts, *map(emit, (*sums, running_logsumexp(x, axis)))])

    return graph([shape], body, dtype)


def _sorts(shape: tuple[int, ...], axis: int, taken: int, dtype: str) -> tvm.IRModule:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        best = emit(op.topk(x, taken, axis, "both", True, "int64"))
        parts = [emit(relax.TupleGetItem(best, i)) for i in (0, 1)]
        sorts = [op.sort(x, axis, True), op.argsort(x, axis, False, "int32")]
        return relax.Tuple([*parts, *map(emit, sorts)])

    return graph([shape], body, dtype)


def _statistics(shape: tuple[int, ...], axis: int, dtype: str) -> tvm.IRModule:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        # Most values several times, in no line the same the most often.
        coarse = emit(op.round(emit(op.multiply(x, relax.const(32.0, dtype)))))
        given = ((x, MEDIAN), (x, NUMBERS_MEDIAN), (coarse, MODE))
        pairs = [emit(order_statistic(data, which, axis)) for data, which in given]
        return relax.Tuple([emit(relax.TupleGetItem(pair, i)) for pair in pairs for i in (0, 1)])

    return graph([shape], body, dtype)


def _first(shape: tuple[int, ...], taken: int, dtype: str) -> tvm.IRModule:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        ways = [emit(op.topk(x, taken, 1, "both", largest, "int64")) for largest in (True, False)]
        return relax.Tuple([emit(relax.TupleGetItem(way, i)) for way in ways for i in (0, 1)])

    return graph([shape], body, dtype)


def _searches(rows: tuple[int, ...], asked: tuple[int, ...], dtype: str) -> tvm.IRModule:
    def body(emit: Emit, x: relax.Var, values: relax.Var) -> relax.Expr:
        sequence = emit(op.sort(x, -1))
        kinds: list[tuple[bool, Any]] = [(False, "int64"), (True, "int32")]
        found = [searchsorted(sequence, values, right=one, dtype=kind) for one, kind in kinds]
        return relax.Tuple([emit(each) for each in found])

    return graph([rows, asked], body, dtype)
