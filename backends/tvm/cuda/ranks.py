"""Sorts on a GPU of short rows: each element counts those that come before it.

A sort by exchanges has steps that wait for each other, and kernels before and behind. Here a thread
reads its row once, and knows the place of its element.

Equal elements stay in their order, and what is no number comes behind all numbers, as in NumPy; in
a descending order before them, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.launch import kernel
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.numbers.rounding import WIDE
from collage.backends.tvm.common.programs import call_program
from collage.backends.tvm.cuda.sort_calls import SortCall

_LONGEST = 128
"""On an H100 sorts of rows of 32 took 4.7 us where TOPI's took 8.1, of 128 9.1 where it took 10.1,
and the first ten of them 6.2 and 9.2 where it took 12; of 512 already twice TOPI's time. That was
before elements were loaded several at once, which no GPU has timed."""

_THREADS = 128

_AT_ONCE = 8
"""Elements that a thread loads before it compares any; one after the other took 70 ns each."""

_COMPARED_AS = {
    **dict.fromkeys(["float16", "bfloat16", WIDE], WIDE),
    "float64": "float64",
    **dict.fromkeys(["bool", "int8", "int16", "int32", "uint8", "uint16"], "int32"),
    **dict.fromkeys(["int64", "uint32"], "int64"),
}


@dataclass(frozen=True)
class _Order:
    """What is sorted, and how much of it is wanted.

    Attributes
    ----------
    length : int
        Of the axis.
    behind : int
        Elements between two that are neighbours along it.
    taken : int
        How many of the first are wanted.
    descending : bool
        Largest first.
    """

    length: int
    behind: int
    taken: int
    descending: bool


def ranked(builder: relax.BlockBuilder, call: relax.Call, x: relax.Expr) -> relax.Expr | None:
    """A sort of short rows as one kernel.

    Parameters
    ----------
    builder, call
        What takes the program, and a ``relax.sort``, ``relax.argsort`` or ``relax.topk``.
    x : relax.Expr
        The operand.

    Returns
    -------
    relax.Expr or None
        None for long rows, for types that cannot be compared, and where there is nothing to sort.
    """
    shape, kind = static_shape(call.args[0]), str(call.args[0].ty.dtype)
    size = math.prod(shape)
    if not shape or not size or kind not in _COMPARED_AS:
        return None
    sort = SortCall.of(call)
    if shape[sort.axis] > _LONGEST:
        return None
    order = _Order(shape[sort.axis], math.prod(shape[sort.axis + 1 :]), sort.taken, sort.descending)

    def write(ins: Sequence[Any], outs: Sequence[Any]) -> None:
        with kernel(-(-size // _THREADS), _THREADS) as (block, own):
            element = block * _THREADS + own
            with T.If(element < size), T.Then():
                results = [(out, dtype) for out, (_, dtype) in zip(outs, sort.results, strict=True)]
                values = results.pop(0)[0] if sort.values else None
                _place(ins[0], _COMPARED_AS[kind], values, results, element, order)

    return call_program(builder, "ranked", [x], sort.results, write)


def _place(
    x: Any,
    kind: str,
    values: Any | None,
    indices: Sequence[tuple[Any, str]],
    element: Any,
    order: _Order,
) -> None:
    """Put one element where it belongs, if that is among those that are wanted."""
    own = element // order.behind % order.length
    first = element - own * order.behind
    before = T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local"))
    value = T.buffer_proxy(T.alloc_buffer((1,), kind, scope="local"))
    others = T.buffer_proxy(T.alloc_buffer((_AT_ONCE,), kind, scope="local"))
    before[0] = 0
    value[0] = x[element].astype(kind)
    whole = order.length % _AT_ONCE == 0
    with T.serial(0, -(-order.length // _AT_ONCE)) as step:
        places = [step * _AT_ONCE + number for number in range(_AT_ONCE)]
        for number, place in enumerate(places):
            within = place if whole else tirx.min(place, order.length - 1)
            others[number] = x[first + within * order.behind].astype(kind)
        counted: Any = before[0]
        for number, place in enumerate(places):
            comes = _comes_before(others[number], value[0], place < own, kind, order.descending)
            counted = counted + (comes if whole else comes & _bit(place < order.length))
        before[0] = counted
    with T.If(before[0] < order.taken), T.Then():
        row = first // (order.length * order.behind)
        within = first % order.behind
        to = (row * order.taken + before[0]) * order.behind + within
        if values is not None:
            values[to] = x[element]
        for each, dtype in indices:
            each[to] = own.astype(dtype)


def _comes_before(other: Any, own: Any, earlier: Any, kind: str, descending: bool) -> Any:
    """1 if another element of the row, which may be an earlier one, comes before one's own, else 0.

    Without a branch, which would keep the next loads waiting.
    """
    ahead = _bit(other > own if descending else other < own)
    usual = ahead | (_bit(other == own) & _bit(earlier))
    if "int" in kind:
        return usual
    none, own_none = _bit(tirx.isnan(other)), _bit(tirx.isnan(own))
    one = tirx.const(1, "int32")
    if descending:
        return (own_none & none & _bit(earlier)) | ((own_none ^ one) & (usual | none))
    return (own_none & ((none ^ one) | _bit(earlier))) | ((own_none ^ one) & usual)


def _bit(truth: Any) -> Any:
    return truth.astype("int32")
