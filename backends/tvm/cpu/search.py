"""Places in sorted rows on a processor: short rows are counted, long ones halved, without branches.

Where a value will lie nobody foresees; a branch for each half takes several times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.blocks import PARALLEL_MIN_WORK
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.common.programs import call_program
from collage.backends.tvm.cpu.not_numbers import is_none
from collage.backends.tvm.cpu.schedules import Machine

_KINDS = ("float32", "float64", "int32", "int64")
_COUNTED = 48
"""Of so many elements each is compared with a vector of values."""

_LANES = 32


def legalize_search(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """How many of a sorted row come before each value.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a call of the operator.
    machine : Machine
        Threads share values.

    Returns
    -------
    relax.Expr
        A call of the tensor program, or all compared with all where it has not the type.
    """
    sequence, values = call.args
    rows, asked = static_shape(sequence), static_shape(values)
    kind, result = str(values.ty.dtype), str(call.ty.dtype)
    if kind not in _KINDS or str(sequence.ty.dtype) != kind or not math.prod((*rows, *asked)):
        return default_legalization(builder, call)
    extent, count = rows[-1], math.prod(asked)
    # Values that share a row.
    width = count if math.prod(rows) == extent else asked[-1]
    lanes = min(width, _LANES)
    blocks, right = math.ceil(width / lanes), bool(call.attrs["right"])
    work = count * min(extent, _COUNTED)
    shared = machine.num_threads > 1 and work >= PARALLEL_MIN_WORK

    def before(element: Any, value: Any) -> Any:
        return element <= value if right else element < value

    def write(ins: Sequence[Any], outs: Sequence[Any]) -> None:
        (row, given), (out,) = ins, outs
        number = count // width * blocks
        with (T.parallel if shared and number > 1 else T.serial)(0, number) as block, T.seq_scope():
            found = T.buffer_proxy(T.alloc_buffer((lanes,), "int32", scope="local"))
            mine = T.buffer_proxy(T.alloc_buffer((lanes,), kind, scope="local"))
            # The last block of a row begins where it fits, and finds some once more.
            begin = block // blocks * width + tirx.min(block % blocks * lanes, width - lanes)
            base = block // blocks * extent
            with T.serial(0, lanes) as lane, T.seq_scope():
                found[lane] = tirx.const(0, "int32")
                mine[lane] = given[begin + lane]
            one, zero = tirx.const(1, "int32"), tirx.const(0, "int32")
            if extent <= _COUNTED:
                with T.serial(0, extent) as i, T.serial(0, lanes) as lane:
                    more = tirx.Select(before(row[base + i], mine[lane]), one, zero)
                    found[lane] = found[lane] + more
            else:
                _halve(row, base, extent, lanes, found, lambda x, lane: before(x, mine[lane]))
            with T.serial(0, lanes) as lane:
                all_of_them = tirx.const(extent, "int32")
                place = tirx.Select(is_none(mine[lane], kind), all_of_them, found[lane])
                out[begin + lane] = place.astype(result)

    return call_program(builder, "searchsorted", [sequence, values], [(asked, result)], write)


def _halve(row: Any, base: Any, extent: int, lanes: int, found: Any, before: Any) -> None:
    left, zero = extent, tirx.const(0, "int32")
    while left > 1:
        half = left // 2
        with T.serial(0, lanes) as lane:
            element = row[base + found[lane] + (half - 1)]
            jump = tirx.Select(before(element, lane), tirx.const(half, "int32"), zero)
            found[lane] = found[lane] + jump
        left -= half
    with T.serial(0, lanes) as lane:
        last = before(row[base + found[lane]], lane)
        found[lane] = found[lane] + tirx.Select(last, tirx.const(1, "int32"), zero)
