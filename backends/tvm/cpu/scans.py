"""Running sums and products on a processor, in float64 as PyTorch has them, rounded once.

In float32 the sum of 100,000 numbers was off by 400 times eager PyTorch's error. Rows are added
side by side: each addition waits for the one before.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.blocks import PARALLEL_MIN_WORK
from collage.backends.tvm.cpu.schedules import Machine

_ROWS = 4
_WIDE = "float64"

_OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "relax.cumsum": (operator.add, 0.0),
    "relax.cumprod": (operator.mul, 1.0),
}


def legalize_scan(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """Sums or products of all up to each place of an axis.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a ``relax.cumsum`` or ``relax.cumprod``.
    machine : Machine
        Threads share rows.

    Returns
    -------
    relax.Expr
        A call of the tensor program; TVM's own of other types than float32.
    """
    (x,), axis = call.args, call.attrs.axis
    shape = static_shape(x)
    kinds = {str(x.ty.dtype), str(call.ty.dtype)}
    if kinds != {"float32"} or not math.prod(shape):
        return call  # A later pass has kernels.
    at = 0 if axis is None else int(axis) % len(shape)
    whole = axis is None
    outer = 1 if whole else math.prod(shape[:at])
    inner = 1 if whole else math.prod(shape[at + 1 :])
    length = math.prod(shape) // (outer * inner)
    combine, none = _OPERATORS[call.op.name]
    exclusive = bool(call.attrs.exclusive)
    # Lanes lie side by side in memory: elements of a row of what is inside, or rows.
    lanes = _divisor(inner, machine.lanes("float32") * 4) if inner > 1 else _divisor(outer, _ROWS)
    groups = outer * inner // lanes
    step, apart = (inner, 1) if inner > 1 else (1, length)

    def program(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        given, out = T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0])

        def group(number: Any) -> None:
            run = T.buffer_proxy(T.alloc_buffer((lanes,), _WIDE, scope="local"))
            per_row = inner // lanes if inner > 1 else 1
            begin = (
                number // per_row * (length * inner) + number % per_row * lanes
                if inner > 1
                else number * (lanes * length)
            )
            with T.serial(0, lanes) as lane:
                run[lane] = T.float64(none)
            with T.serial(0, length) as place, _over(lanes, inner > 1) as lane:
                element = begin + place * step + lane * apart
                if exclusive:
                    out[element] = run[lane].astype("float32")
                run[lane] = combine(run[lane], given[element].astype(_WIDE))
                if not exclusive:
                    out[element] = run[lane].astype("float32")

        shared = machine.num_threads > 1 and math.prod(shape) >= PARALLEL_MIN_WORK and groups > 1
        with IRBuilder() as ib:
            with T.seq_scope(), (T.parallel if shared else T.serial)(0, groups) as number:
                group(number)
            return ib.get()

    def scanned(data: te.Tensor) -> te.Tensor:
        return te.extern(
            [static_shape(call)],
            [data],
            program,
            dtype=["float32"],
            in_buffers=[tirx.decl_buffer(data.shape, data.dtype, "data")],
            out_buffers=[tirx.decl_buffer(static_shape(call), "float32", "out_buf", layout=None)],
            name="scanned",
        )

    return builder.call_te(scanned, x, primfunc_name_hint="scanned")


def _over(lanes: int, together: bool) -> Any:
    return T.serial(0, lanes) if together else T.unroll(0, lanes)


def _divisor(extent: int, most: int) -> int:
    return max(n for n in range(1, min(extent, most) + 1) if extent % n == 0)
