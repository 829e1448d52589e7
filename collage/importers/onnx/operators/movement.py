"""Operators that move elements: blocks and channels, reversed parts of sequences, caches."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import (
    Node,
    Refused,
    const,
    fixed_tensor,
    shape_of,
    vector_shape,
)


def _depth_to_space(node: Node) -> relax.Expr:
    b = node.integer("blocksize", 1)
    n, c, h, w = node.shape(0)
    if node.text("mode", "DCR") == "CRD":
        split, order = (n, c // (b * b), b, b, h, w), [0, 1, 4, 2, 5, 3]
    else:
        split, order = (n, b, b, c // (b * b), h, w), [0, 3, 4, 1, 5, 2]
    x = node.emit(op.permute_dims(node.emit(op.reshape(node.operand(0), split)), order))
    return op.reshape(x, (n, c // (b * b), h * b, w * b))


def _space_to_depth(node: Node) -> relax.Expr:
    b = node.integer("blocksize", 1)
    n, c, h, w = node.shape(0)
    # In CRD order (from opset 25 on) the channel comes before its place in the block.
    order = [0, 1, 3, 5, 2, 4] if node.text("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    x = node.emit(op.reshape(node.operand(0), (n, c, h // b, b, w // b, b)))
    return op.reshape(node.emit(op.permute_dims(x, order)), (n, c * b * b, h // b, w // b))


def _reverse_sequence(node: Node) -> relax.Expr:
    """Each sequence's first elements backwards, the rest as it is."""
    emit, shape = node.emit, node.shape(0)
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    lengths = emit(op.astype(node.operand(1), "int64"))
    column = vector_shape(len(shape), batch, shape[batch])
    lengths = emit(op.reshape(lengths, column))
    row = vector_shape(len(shape), time, shape[time])
    steps = fixed_tensor(np.arange(shape[time], dtype="int64").reshape(row))
    one = const(1, "int64")
    mirrored = emit(op.subtract(emit(op.subtract(lengths, steps)), one))
    places = emit(op.where(emit(op.less(steps, lengths)), mirrored, steps))
    places = emit(op.broadcast_to(places, shape))
    return emit(op.gather_elements(node.operand(0), places, time))


def _col2im(node: Node) -> relax.Expr:
    """Every pixel is the sum of the columns' elements that lie over it; where, is known now."""
    image = [int(n) for n in node.fixed(1, "image shape")]
    block = [int(n) for n in node.fixed(2, "block shape")]
    rank = len(image)
    strides, dilations = (
        node.integers("strides", [1] * rank),
        node.integers("dilations", [1] * rank),
    )
    pads = node.integers("pads", [0] * 2 * rank)
    steps = [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    over: list[list[int]] = [[] for _ in range(math.prod(image))]
    for element, (inner, outer) in enumerate(
        (inner, outer) for inner in np.ndindex(*block) for outer in np.ndindex(*steps)
    ):
        place = [outer[i] * strides[i] + inner[i] * dilations[i] - pads[i] for i in range(rank)]
        if all(0 <= p < n for p, n in zip(place, image, strict=True)):
            over[int(np.ravel_multi_index(place, image))].append(element)
    batch, wide, columns = node.shape(0)
    count = math.prod(block)
    nothing, most = count * columns, max(1, *map(len, over))
    table = np.asarray([[*found, *[nothing] * (most - len(found))] for found in over], "int32")
    flat = node.emit(op.reshape(node.operand(0), [batch, wide // count, nothing]))
    flat = node.emit(op.nn.pad(flat, [0, 0, 0, 0, 0, 1]))
    taken = node.emit(op.take(flat, fixed_tensor(table.reshape(-1)), 2))
    parts = node.emit(op.reshape(taken, [batch, wide // count, len(over), most]))
    return node.emit(op.reshape(node.emit(op.sum(parts, [3])), [batch, wide // count, *image]))


def _tensor_scatter(node: Node) -> relax.Expr:
    """A cache with an update written from each sample's own place on."""
    emit, shape = node.emit, node.shape(0)
    axis = node.integer("axis", -2) % len(shape)
    if axis == 0:
        raise Refused("the axis of the batch")
    length, update = shape[axis], node.operand(1)
    new = shape_of(update)[axis]
    row = vector_shape(len(shape), axis, length)
    places = fixed_tensor(np.arange(length, dtype="int64").reshape(row))
    if node.has(2):
        column = vector_shape(len(shape), 0, shape[0])
        first = emit(op.reshape(emit(op.astype(node.operand(2), "int64")), column))
    else:
        first = const(0, "int64")
    # The place in the update of what comes to stand at each place of the cache.
    source = emit(op.subtract(places, first))
    if node.text("mode", "linear") == "circular":
        source = emit(op.floor_mod(source, const(length, "int64")))
    written = emit(
        op.logical_and(
            emit(op.greater_equal(source, const(0, "int64"))),
            emit(op.less(source, const(new, "int64"))),
        )
    )
    source = emit(op.clip(source, 0, new - 1))
    wide = [*shape]
    source = emit(op.broadcast_to(source, wide))
    taken = emit(op.gather_elements(update, source, axis))
    return emit(op.where(written, taken, node.operand(0)))


def _cumulative_product(node: Node) -> relax.Expr:
    emit, shape = node.emit, node.shape(0)
    axis = int(node.fixed(1, "axis").item()) % len(shape)
    backwards = bool(node.integer("reverse", 0))
    x = node.operand(0)
    if backwards:
        x = emit(op.flip(x, axis))
    x = emit(op.cumprod(x, axis, exclusive=bool(node.integer("exclusive", 0))))
    return emit(op.flip(x, axis)) if backwards else x


def _sequence_length(node: Node) -> relax.Expr:
    """How many tensors a sequence holds, which is known from how it was made."""
    return const(len(node.operand(0).ty.fields), "int64")


def _one_of_sequence(node: Node) -> relax.Expr | None:
    """By its place, which may be counted from the end."""
    place = int(node.fixed(1, "place").item())
    length = len(node.operand(0).ty.fields)
    if not -length <= place < length:
        raise Refused(f"there is no tensor {place} in a sequence of {length}")
    return node.emit(relax.TupleGetItem(node.operand(0), place % length))


CONVERTERS = {
    "SequenceAt": _one_of_sequence,
    "SequenceLength": _sequence_length,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "ReverseSequence": _reverse_sequence,
    "Col2Im": _col2im,
    "TensorScatter": _tensor_scatter,
    "CumProd": _cumulative_product,
}
