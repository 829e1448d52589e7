"""Scatters of rows on a processor: update after update, a row of each at once.

TOPI's kernel begins a parallel loop for each index, over the few elements that it chooses: messages
along the 256 edges of a graph took 170 us to be added, of which adding is 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.common.scatter import Scatter
from collage.backends.tvm.cpu.schedules import Machine

_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda _, update: update,
    "add": lambda old, update: old + update,
    "mul": lambda old, update: old * update,
    "min": tirx.min,
    "max": tirx.max,
}

_SHARED_ELEMENTS = 1 << 15
"""Fewer updates are not worth waking threads for."""

_PIECE = 16
"""Of a row, at the least, for each thread: whole cache lines."""


def legalize_scatter_nd(
    builder: relax.BlockBuilder, call: relax.Call, machine: Machine
) -> relax.Expr:
    """``data`` with ``updates`` at, or reduced with what is at, places of its first axes.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a ``relax.scatter_nd``.
    machine : Machine
        Threads share long rows: no two write to the same place.

    Returns
    -------
    relax.Expr
        A call of the tensor program.
    """
    reduction = str(call.attrs.reduction)
    if reduction not in _REDUCTIONS or not math.prod(static_shape(call)):
        return default_legalization(builder, call)
    scatter = Scatter.of_rows(call)
    if not scatter.count:
        return default_legalization(builder, call)
    pieces = _pieces(scatter, machine.num_threads)
    width, combined = scatter.row // pieces, _REDUCTIONS[reduction]

    def program(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        x, chosen, updates = (T.buffer_proxy(each) for each in ins)
        out = T.buffer_proxy(outs[0])

        def put(number: Any, piece: Any) -> None:
            begin = number * scatter.row + piece * width
            place = scatter.place(chosen, begin)
            # Which it is anyway where it is written; said so, no element is looked at for that.
            element = tirx.max(tirx.min(place.element, scatter.size - width), 0)
            with T.If(tirx.all(*place.inside)), T.Then(), T.serial(0, width) as column:
                old = out[element + column]
                out[element + column] = combined(old, updates[begin + column])

        with IRBuilder() as ib:
            with T.seq_scope():
                with T.serial(0, scatter.size) as number:
                    out[number] = x[number]
                if pieces == 1:
                    with T.serial(0, scatter.count // scatter.row) as number:
                        put(number, 0)
                else:
                    with (
                        T.parallel(0, pieces) as piece,
                        T.serial(0, scatter.count // scatter.row) as number,
                    ):
                        put(number, piece)
            return ib.get()

    def scattered(x: te.Tensor, chosen: te.Tensor, updates: te.Tensor) -> te.Tensor:
        out = tirx.decl_buffer(x.shape, x.dtype, "out_buf", layout=None)
        return te.extern(
            [x.shape],
            [x, chosen, updates],
            program,
            dtype=[str(x.dtype)],
            in_buffers=[
                tirx.decl_buffer(each.shape, each.dtype, name)
                for each, name in ((x, "data"), (chosen, "indices"), (updates, "updates"))
            ],
            out_buffers=[out],
            name="scattered",
        )

    return builder.call_te(scattered, *call.args, primfunc_name_hint="scattered")


def _pieces(scatter: Scatter, threads: int) -> int:
    """Of each row: as many as there are threads, or fewer, all equally wide."""
    if scatter.count < _SHARED_ELEMENTS:
        return 1
    most = min(threads, scatter.row // _PIECE)
    return max((n for n in range(1, most + 1) if scatter.row % n == 0), default=1)
