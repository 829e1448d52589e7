"""Parts of rows that are written anew: what an element comes from, the loop that it is in decides.

Decided for each element, as TVM's own kernels have it, it kept LLVM from copying whole vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.blocks import PARALLEL_MIN_WORK
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.cpu.schedules import Machine, pieces


def legalize_slice_scatter(
    builder: relax.BlockBuilder, call: relax.Call, machine: Machine
) -> relax.Expr:
    """A slice of an axis that another tensor takes the place of.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a ``relax.slice_scatter``.
    machine : Machine
        Threads share rows.

    Returns
    -------
    relax.Expr
        A call of the tensor program; TVM's own where the slice is of whole rows.
    """
    x, source, *bounds = call.args
    shape, taken = tensor_shape(x), tensor_shape(source)
    if not shape or not taken or 0 in (*shape, *taken):
        return default_legalization(builder, call)
    axis = int(call.attrs.axis) % len(shape)
    begin, step = (int(bounds[i].value) for i in (0, 2))
    if axis != len(shape) - 1 or begin < 0:
        return default_legalization(builder, call)
    count = taken[-1]
    if taken[:-1] != shape[:-1] or begin + (count - 1) * step >= shape[-1]:
        return default_legalization(builder, call)

    def scattered(data: te.Tensor, part: te.Tensor) -> te.Tensor:
        if step == 1:
            return _in_pieces(data, part, begin)
        return _in_steps(data, part, begin, step, machine)

    return builder.call_te(scattered, x, source, primfunc_name_hint="slice_scatter")


def _in_pieces(data: te.Tensor, part: te.Tensor, begin: int) -> te.Tensor:
    extent, count = int(data.shape[-1]), int(part.shape[-1])

    def element(*at: Any) -> Any:
        *outer, place = at
        inside = tirx.all(place >= begin, place < begin + count)
        return tirx.if_then_else(inside, part(*outer, place - begin), data(*at))

    lengths = [length for length in (begin, count, extent - begin - count) if length]
    return pieces.in_pieces(te.compute(data.shape, element, "slice_scatter"), lengths)


def _in_steps(
    data: te.Tensor, part: te.Tensor, begin: int, step: int, machine: Machine
) -> te.Tensor:
    """Rows are copied, and then written in places."""
    shape = [int(extent) for extent in data.shape]
    extent, count, rows = shape[-1], int(part.shape[-1]), math.prod(shape[:-1])
    shared = machine.num_threads > 1 and math.prod(shape) >= PARALLEL_MIN_WORK and rows > 1

    def program(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        given, new = (T.buffer_proxy(buffer) for buffer in ins)
        out = T.buffer_proxy(outs[0])
        with IRBuilder() as ib:
            with T.seq_scope(), (T.parallel if shared else T.serial)(0, rows) as row:
                with T.serial(0, extent) as place:
                    out[row * extent + place] = given[row * extent + place]
                with T.serial(0, count) as place:
                    out[row * extent + begin + place * step] = new[row * count + place]
            return ib.get()

    kind = str(data.dtype)
    return te.extern(
        [shape],
        [data, part],
        program,
        dtype=[kind],
        in_buffers=[
            tirx.decl_buffer(x.shape, kind, name, layout=None)
            for x, name in ((data, "data"), (part, "part"))
        ],
        out_buffers=[tirx.decl_buffer(shape, kind, "out_buf", layout=None)],
        name="slice_scatter",
    )
