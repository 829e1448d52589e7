"""Running extremes on a processor, one element after the other.

Taken apart into as many steps as bits of the length, they took up to 38 times PyTorch's time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.kept_whole.running import RunningExtreme
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.blocks import PARALLEL_MIN_WORK
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.common.programs import call_program
from collage.backends.tvm.cpu.not_numbers import is_none
from collage.backends.tvm.cpu.schedules import Machine

_KINDS = ("float32", "float64", "int8", "int32", "int64", "uint8")
_ROWS, _VECTORS = 4, 4
"""Side by side: each comparison waits for the one before."""


def legalize_running(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """Extremes of all up to each place of an axis, and where they were last.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a call of the operator.
    machine : Machine
        Threads share rows.

    Returns
    -------
    relax.Expr
        A call of the tensor program, or the operator's steps where it has not the type.
    """
    (x,), one = call.args, RunningExtreme.of(call)
    shape, kind = static_shape(x), str(x.ty.dtype)
    if kind not in _KINDS or not math.prod(shape):
        return default_legalization(builder, call)
    length = shape[one.axis]
    outer, inner = math.prod(shape[: one.axis]), math.prod(shape[one.axis + 1 :])
    # Lanes lie side by side in memory: elements of a row of what is inside, or rows.
    within = inner > 1
    most = machine.lanes("float32") * _VECTORS if within else _ROWS
    lanes = max(n for n in range(1, most + 1) if (inner if within else outer) % n == 0)
    groups = outer * inner // lanes
    shared = machine.num_threads > 1 and math.prod(shape) >= PARALLEL_MIN_WORK and groups > 1

    def write(ins: Sequence[Any], outs: Sequence[Any]) -> None:
        (given,), (values, places) = ins, outs
        with (T.parallel if shared else T.serial)(0, groups) as number, T.seq_scope():
            best = T.buffer_proxy(T.alloc_buffer((lanes,), kind, scope="local"))
            where = T.buffer_proxy(T.alloc_buffer((lanes,), "int32", scope="local"))
            per_row = inner // lanes if within else 1
            begin = (
                number // per_row * (length * inner) + number % per_row * lanes
                if within
                else number * (lanes * length)
            )
            step, apart = (inner, 1) if within else (1, length)
            with T.serial(0, lanes) as lane, T.seq_scope():
                best[lane] = given[begin + lane * apart]
                where[lane] = tirx.const(0, "int32")
            with (
                T.serial(0, length) as place,
                (T.serial if within else T.unroll)(0, lanes) as lane,
                T.seq_scope(),
            ):
                element = begin + place * step + lane * apart
                here = given[element]
                taken = _beats(here, best[lane], one.largest, kind)
                if lanes == 1:
                    # Seldom, and foreseen: nothing waits for it.
                    with T.If(taken), T.Then(), T.seq_scope():
                        best[lane] = here
                        where[lane] = place.astype("int32")
                else:
                    where[lane] = tirx.Select(taken, place.astype("int32"), where[lane])
                    best[lane] = tirx.Select(taken, here, best[lane])
                values[element] = best[lane]
                places[element] = where[lane].astype("int64")

    return call_program(builder, "running", [x], [(shape, kind), (shape, "int64")], write)


def _beats(here: Any, best: Any, largest: bool, kind: str) -> Any:
    found = here >= best if largest else here <= best
    return tirx.any(found, is_none(here, kind)) if "float" in kind else found
