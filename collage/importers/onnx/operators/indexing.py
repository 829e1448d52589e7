"""Operators that write or read by position, and tensors that are known but for their data."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import (
    Array,
    Converter,
    Node,
    Refused,
    const,
    fixed_tensor,
    shape_of,
    vector_shape,
)


def _one_hot(node: Node) -> relax.Expr:
    """Two values, chosen by whether a place along the new axis is the index; beyond it, nowhere."""
    emit, shape = node.emit, node.shape(0)
    depth = int(node.fixed(1, "depth").item())
    axis = node.integer("axis", -1) % (len(shape) + 1)
    index = emit(op.astype(node.operand(0), "int64"))
    whole = const(depth, "int64")
    below = emit(op.less(index, const(0, "int64")))
    index = emit(op.where(below, emit(op.add(index, whole)), index))
    index = emit(op.reshape(index, [*shape[:axis], 1, *shape[axis:]]))
    row = vector_shape(len(shape) + 1, axis, depth)
    here = emit(op.equal(index, fixed_tensor(np.arange(depth, dtype="int64").reshape(row))))
    off, on = (_element(node, 2, place) for place in range(2))
    return emit(op.where(here, on, off))


def _element(node: Node, index: int, place: int) -> relax.Expr:
    """One element of a vector, of rank 0."""
    part = node.emit(op.strided_slice(node.operand(index), [0], [place], [place + 1]))
    return node.emit(op.reshape(part, []))


def _eye_like(node: Node) -> relax.Expr:
    rows, columns = node.shape(0)
    kind = node.attributes.get("dtype")
    dtype = helper.tensor_dtype_to_np_dtype(int(kind)).name if kind else node.dtype(0)
    return const(np.eye(rows, columns, node.integer("k", 0)), dtype)


def _compress(node: Node) -> relax.Expr:
    """The chosen slices, where the choice is known."""
    chosen = node.constant(1)
    if chosen is None:
        raise Refused("the shape of its result depends on data")
    x, shape = node.operand(0), node.shape(0)
    if "axis" not in node.attributes:
        x = node.emit(op.reshape(x, [math.prod(shape)]))
    places = np.flatnonzero(chosen).astype("int32")
    return node.emit(op.take(x, fixed_tensor(places), node.integer("axis", 0) % len(shape_of(x))))


def _reshape(node: Node) -> relax.Expr | None:
    """TVM's, but of empty tensors: an extent of 0 is one of the operand's to Relax, always."""
    shape = node.shape(0)
    if 0 not in shape:
        return None
    wanted = [int(extent) for extent in node.fixed(1, "shape")]
    kept = [] if node.integer("allowzero", 0) else [i for i, n in enumerate(wanted) if n == 0]
    if -1 in wanted:
        # Of the operand's other extents: a batch of none has rows as long as any other.
        rest = math.prod(n for i, n in enumerate(shape) if i not in kept)
        given = math.prod(n for i, n in enumerate(wanted) if i not in kept and n != -1)
        wanted[wanted.index(-1)] = 0 if given == 0 else rest // given
    for i in kept:
        wanted[i] = shape[i]
    if 0 not in wanted:
        raise Refused(f"{wanted} has elements, and {shape} has none")
    return node.emit(op.zeros(wanted, node.dtype(0)))


def _pad(node: Node) -> relax.Expr | None:
    """TVM's, but where the value is computed: it is put where nothing of the operand lies."""
    if (
        not node.has(2)
        or node.constant(2) is not None
        or node.text("mode", "constant") != "constant"
    ):
        return None
    emit, shape, kind = node.emit, node.shape(0), node.dtype(0)
    pads = [int(p) for p in node.fixed(1, "pads")]
    axes = node.axes(3, len(shape))
    if axes is None:
        axes = list(range(len(shape)))
    low, high = [0] * len(shape), [0] * len(shape)
    for i, axis in enumerate(axes):
        low[axis], high[axis] = pads[i], pads[i + len(axes)]
    x = node.operand(0)
    # A negative pad cuts off.
    x = emit(
        op.strided_slice(
            *(x, list(range(len(shape))), [max(-n, 0) for n in low]),
            [extent - max(-n, 0) for extent, n in zip(shape, high, strict=True)],
        )
    )
    added = [(max(b, 0), max(e, 0)) for b, e in zip(low, high, strict=True)]
    inside: Array = np.pad(np.ones(shape_of(x), bool), added)
    x = emit(op.nn.pad(x, [n for pair in added for n in pair]))
    value = emit(op.reshape(emit(op.astype(node.operand(2), kind)), []))
    return emit(op.where(fixed_tensor(inside), x, value))


def _max_unpool(node: Node) -> relax.Expr:
    """Zeros but for what a pool has kept, where it was."""
    emit, shape, kind = node.emit, node.shape(0), node.dtype(0)
    kernel = node.integers("kernel_shape", ())
    rank = len(kernel)
    strides, pads = node.integers("strides", [1] * rank), node.integers("pads", [0] * 2 * rank)
    pooled = shape[:2] + [
        (shape[i + 2] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)
    ]
    empty = emit(op.zeros([math.prod(pooled)], kind))
    places, values = (emit(op.reshape(node.operand(i), [math.prod(shape)])) for i in (1, 0))
    full = emit(op.reshape(emit(op.scatter_elements(empty, places, values, 0)), pooled))
    if not node.has(2):
        return full
    wanted = [int(extent) for extent in node.fixed(2, "output shape")]
    more = [w - p for w, p in zip(wanted, pooled, strict=True)]
    if min(more) < 0:
        raise Refused(f"an output shape {wanted} below {pooled}")
    return emit(op.nn.pad(full, [n for extent in more for n in (0, extent)]))


def _determinant(node: Node) -> relax.Expr:
    """By minors: exact enough and short for the small matrices that networks have."""
    *lead, size, columns = node.shape(0)
    if size != columns or size > _LARGEST:
        raise Refused(f"a matrix of {size} x {columns}; up to {_LARGEST} rows are computed")
    return node.emit(op.reshape(_minor(node, list(range(size)), list(range(size))), lead))


_LARGEST = 4


def _minor(node: Node, rows: list[int], columns: list[int]) -> relax.Expr:
    total = None
    for place, column in enumerate(columns):
        axes = [len(node.shape(0)) - 2, len(node.shape(0)) - 1]
        term = node.emit(
            op.strided_slice(node.operand(0), axes, [rows[0], column], [rows[0] + 1, column + 1])
        )
        if len(rows) > 1:
            rest = [other for other in columns if other != column]
            term = node.emit(op.multiply(term, _minor(node, rows[1:], rest)))
        if total is None:
            total = term
        else:
            total = node.emit((op.subtract if place % 2 else op.add)(total, term))
    return total


def _triangle(node: Node) -> relax.Expr | None:
    """TVM's, but of what has no elements."""
    return node.operand(0) if 0 in node.shape(0) else None


def _split(node: Node) -> relax.Expr | None:
    """TVM's, but into parts of which some have no elements."""
    sizes = node.integers("split", ()) if node.opset < 13 else node.constant(1)
    if sizes is None or 0 not in sizes:
        return None
    axis = node.integer("axis", 0) % len(node.shape(0))
    ends = np.cumsum([int(size) for size in sizes])
    return relax.Tuple(
        [
            node.emit(op.strided_slice(node.operand(0), [axis], [int(end - size)], [int(end)]))
            for end, size in zip(ends, sizes, strict=True)
        ]
    )


def _largest(node: Node) -> relax.Expr:
    """In descending order of what is wanted, also where any order will do.

    TVM's converter takes one element in operator set 10, whatever the number is.
    """
    if node.dtype(0) in ("uint64", "uint32", "uint16"):
        raise Refused(f"TVM does not sort {node.dtype(0)}")
    count, largest = int(node.fixed(1, "number").item()), bool(node.integer("largest", 1))
    axis = node.integer("axis", -1)
    return op.topk(node.operand(0), count, axis, ret_type="both", largest=largest, dtype="int64")


CONVERTERS: dict[str, Converter] = {
    "Split": _split,
    "TopK": _largest,
    "Trilu": _triangle,
    "Compress": _compress,
    "Det": _determinant,
    "EyeLike": _eye_like,
    "MaxUnpool": _max_unpool,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Reshape": _reshape,
}
