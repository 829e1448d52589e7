"""onnxruntime's biases of attention that say how far columns are from rows."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.microsoft.scores import in_heads, swapped
from collage.importers.onnx.operators.node import Array, Node, Refused, const, shape_of


def _buckets(rows: int, count: int, furthest: int, both: bool) -> Array:
    """The bucket of each column for each row: near ones have their own, farther ones share them
    by the logarithm of their distance."""
    apart = np.arange(rows)[None] - np.arange(rows)[:, None]
    first = np.zeros_like(apart)
    if both:
        count //= 2
        first = np.where(apart > 0, count, 0)
        apart = np.abs(apart)
    else:
        apart = np.maximum(-apart, 0)
    near = count // 2
    # In float32, as where the tables were trained: a rounded logarithm may be the bucket before.
    share = np.log(np.maximum(apart, 1).astype("float32") / np.float32(near))
    share /= np.log(np.float32(furthest) / np.float32(near))
    far = np.minimum(near + (share * np.float32(count - near)).astype("int64"), count - 1)
    result: Array = first + np.where(apart < near, apart, far)
    return result


def _by_distance(node: Node) -> relax.Expr:
    """A table's rows by how far columns are, as in T5; the table lies in memory head by head."""
    emit, (count, heads) = node.emit, node.shape(0)
    rows, columns = (int(node.fixed(i, "number of rows").item()) for i in (1, 2))
    if rows != columns:
        raise Refused(f"{rows} rows beside {columns} columns; onnxruntime takes as many of both")
    both = bool(node.integer("is_bidirectional", 0))
    furthest = node.integer("max_distance", 0)
    if count < 4 or furthest <= count:
        raise Refused(f"{count} buckets of distances up to {furthest}")
    places = const(_buckets(rows, count, furthest, both).reshape(-1), "int64")
    table = emit(op.reshape(node.operand(0), [heads, count]))
    return emit(op.reshape(emit(op.take(table, places, 1)), [1, heads, rows, rows]))


def _gated(node: Node) -> relax.Expr:
    """A bias that each row takes as much of as its query says, as in WavLM."""
    if node.has(6) or len(node.shape(0)) != 3:
        raise Refused("sequences without their padding; optimize the model without removing it")
    emit, kind, heads = node.emit, node.dtype(0), node.integer("num_heads", 0)
    query = emit(op.add(node.operand(0), node.operand(1)))
    query = swapped(node, in_heads(node, query, heads))
    batch, _, rows, _ = shape_of(query)
    wide = node.shape(4)[0]
    gates = emit(op.add(emit(op.matmul(query, node.operand(3))), node.operand(4)))
    gates = emit(op.sum(emit(op.reshape(gates, [batch, heads, rows, 2, wide // 2])), [4]))
    gates = emit(op.sigmoid(gates))
    first, second = (emit(op.strided_slice(gates, [3], [i], [i + 1])) for i in (0, 1))
    less = emit(op.subtract(emit(op.multiply(second, node.operand(5))), const(1.0, kind)))
    share = emit(op.add(emit(op.multiply(first, less)), const(2.0, kind)))
    return emit(op.multiply(share, node.operand(2)))


MICROSOFT = {"GatedRelativePositionBias": _gated, "RelativePositionBias": _by_distance}
