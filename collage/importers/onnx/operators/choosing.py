"""Operators that choose as many rows as the data say: the most that it may be, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.importers.choosing import first_rows, places_of_truth
from collage.importers.onnx.operators.node import Converter, Node, Refused, const

MORE_ROWS = "collage_more_rows"
"""An attribute: how many rows more than there can be. What depends on them is found out so."""

CHOOSING = ("NonMaxSuppression", "NonZero")


def _non_zero(node: Node) -> relax.Expr:
    x = node.operand(0)
    if node.dtype(0) != "bool":
        x = node.emit(op.not_equal(x, const(0, node.dtype(0))))
    places, count = places_of_truth(node.builder, x, node.integer(MORE_ROWS, 0))
    return relax.Tuple([node.emit(op.stack(places, 0)), count])


def _suppress(node: Node) -> relax.Expr:
    """Of each class the boxes with the best scores that overlap none of those taken before."""
    emit, kind = node.emit, node.dtype(0)
    boxes, scores = node.operand(0), node.operand(1)
    batch, classes, count = node.shape(1)
    limit = int(node.fixed(2, "number of boxes").item()) if node.has(2) else 0
    overlap = float(node.fixed(3, "overlap").item()) if node.has(3) else 0.0
    least = float(node.fixed(4, "least score").item()) if node.has(4) else -np.inf
    most = batch * classes * min(limit, count)
    if most <= 0:
        raise Refused("it chooses nothing")
    parts = [emit(op.strided_slice(boxes, [2], [i], [i + 1])) for i in range(4)]
    if node.integer("center_point_box", 0):
        half = const(0.5, kind)
        sides = [emit(op.multiply(half, part)) for part in parts[2:]]
        low = [emit(op.subtract(c, side)) for c, side in zip(parts[:2], sides, strict=True)]
        high = [emit(op.add(c, side)) for c, side in zip(parts[:2], sides, strict=True)]
    else:
        low = [emit(op.minimum(parts[i], parts[i + 2])) for i in range(2)]
        high = [emit(op.maximum(parts[i], parts[i + 2])) for i in range(2)]
    corners = emit(op.concat([*low, *high], 2))
    order = emit(op.argsort(scores, 2, descending=True, dtype="int64"))

    def kept(*given: te.Tensor) -> list[te.Tensor]:
        found: list[te.Tensor] = te.extern(
            [(most, 3), (1,)],
            list(given),
            lambda ins, outs: _greedy(ins, outs, min(limit, count), overlap, least),
            dtype=["int64", "int64"],
            name="suppressed",
        )
        return found

    both = node.builder.emit_te(kept, corners, scores, order, primfunc_name_hint="suppressed")
    rows, total = (emit(relax.TupleGetItem(both, i)) for i in range(2))
    more = node.integer(MORE_ROWS, 0)
    return relax.Tuple([first_rows(node.builder, rows, total, most, most + more), total])


def _greedy(
    ins: Sequence[tirx.Buffer],
    outs: Sequence[tirx.Buffer],
    limit: int,
    overlap: float,
    least: float,
) -> tirx.Stmt:
    """The program: boxes of every class in the order of their scores."""
    batch, classes, count = (int(n) for n in ins[1].shape)
    with IRBuilder() as program, T.seq_scope():
        boxes, scores, order = (T.buffer_proxy(x) for x in ins)
        rows, total = (T.buffer_proxy(x) for x in outs)
        begin, alive = (
            T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local")) for _ in range(2)
        )

        def area(b: Any, i: Any) -> Any:
            return (boxes[b, i, 2] - boxes[b, i, 0]) * (boxes[b, i, 3] - boxes[b, i, 1])

        def overlaps(b: Any, i: Any, j: Any) -> Any:
            sides = [
                tirx.min(boxes[b, i, n + 2], boxes[b, j, n + 2])
                - tirx.max(boxes[b, i, n], boxes[b, j, n])
                for n in range(2)
            ]
            zero = tirx.const(0, boxes.dtype)
            shared = tirx.max(sides[0], zero) * tirx.max(sides[1], zero)
            # Divided as onnxruntime does: what is on the very limit is on it for both.
            share = shared / (area(b, i) + area(b, j) - shared)
            return tirx.all(shared > zero, share > tirx.const(overlap, boxes.dtype))

        with T.serial(0, int(outs[0].shape[0])) as row, T.serial(0, 3) as column:
            rows[row, column] = T.int64(0)
        total[0] = T.int64(0)
        with T.serial(0, batch) as b, T.serial(0, classes) as c, T.seq_scope():
            begin[0] = total[0]
            with T.serial(0, count) as place:
                best = order[b, c, place]
                wanted = scores[b, c, best] > tirx.const(least, scores.dtype)
                with T.If(tirx.all(total[0] - begin[0] < limit, wanted)), T.Then():
                    alive[0] = T.int64(1)
                    with T.serial(begin[0], total[0]) as taken, T.seq_scope():
                        hidden = overlaps(b, best, rows[taken, 2])
                        alive[0] = tirx.if_then_else(hidden, T.int64(0), alive[0])
                    with T.If(alive[0] > 0), T.Then():
                        rows[total[0], 0] = tirx.Cast("int64", b)
                        rows[total[0], 1] = tirx.Cast("int64", c)
                        rows[total[0], 2] = best
                        total[0] = total[0] + 1
    return program.get()


CONVERTERS: dict[str, Converter] = {"NonMaxSuppression": _suppress, "NonZero": _non_zero}
