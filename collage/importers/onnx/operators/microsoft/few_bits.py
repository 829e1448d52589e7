"""onnxruntime's operators with weights of 2, 4 and 8 bits, which have scales by blocks.

Weights of products become what they stand for; tables that rows are looked up in stay in bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.microsoft.experts import mixture
from collage.importers.onnx.operators.microsoft.optimized import with_bias
from collage.importers.onnx.operators.node import (
    Array,
    Node,
    Refused,
    const,
    fixed_tensor,
    shape_of,
)

_BITS = (2, 4, 8)

_NORMAL_FLOATS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""What 4 bits stand for as bitsandbytes' ``nf4``: quantiles of a normal distribution."""

_FLOATS = (0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
"""What 3 bits stand for as its ``fp4``; a fourth is the sign."""


def _unpacked(packed: Array, bits: int) -> Array:
    """Bytes as the numbers in them along the last axis, the lowest bits first."""
    if bits == 8:
        return packed
    parts = [packed >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)


def _bits_of(node: Node, name: str, default: int) -> int:
    bits = node.integer(name, default) or default
    if bits not in _BITS:
        raise Refused(f"weights of {bits} bits")
    return bits


def _product(node: Node) -> relax.Expr:
    """By weights whose columns are scaled by blocks, or by the groups that a table names."""
    bits, rows, columns = _bits_of(node, "bits", 4), node.integer("N", 0), node.integer("K", 0)
    block = node.integer("block_size", 0)
    values = _unpacked(node.fixed(1, "weights"), bits).reshape(rows, -1)[:, :columns]
    scales = node.fixed(2, "scales").astype("float32").reshape(rows, -1)
    points: Array = np.full(scales.shape, 1 << (bits - 1), "float32")
    if node.has(3):
        given = node.fixed(3, "zero points").reshape(rows, -1)
        whole = _unpacked(given, bits) if given.dtype == np.uint8 else given
        points = whole[:, : scales.shape[1]].astype("float32")
    groups = np.arange(columns) // block
    if node.has(4):
        groups = node.fixed(4, "groups").reshape(-1)[:columns]
    weights = (values.astype("float32") - points[:, groups]) * scales[:, groups]
    turned = fixed_tensor(weights.T.astype(node.dtype(0)).copy())
    return with_bias(node, node.emit(op.matmul(node.operand(0), turned)), 5)


def _product_of_floats(node: Node) -> relax.Expr:
    """By weights of bitsandbytes': the higher half of a byte comes first."""
    rows, columns, block = (node.integer(name, 0) for name in ("N", "K", "block_size"))
    table = [*_FLOATS, *(-each for each in _FLOATS)]
    if node.integer("quant_type", 1):
        table = [*_NORMAL_FLOATS]
    halves = _unpacked(node.fixed(1, "weights").reshape(-1, 1), 4)[:, ::-1].reshape(-1)
    values = np.asarray(table, "float32")[halves[: rows * columns]]
    scales = node.fixed(2, "scales").astype("float32")[np.arange(rows * columns) // block]
    weights = (values * scales).reshape(rows, columns)
    return op.matmul(node.operand(0), fixed_tensor(weights.T.astype(node.dtype(0)).copy()))


def _rows(node: Node) -> relax.Expr:
    """Looked up in a table of bytes, and scaled then."""
    bits, block = _bits_of(node, "bits", 4), node.integer("block_size", 128)
    table, scales = node.fixed(0, "table"), node.fixed(2, "scales")
    rank = table.ndim
    by, along = node.integer("gather_axis", 0) % rank, node.integer("quantize_axis", 1) % rank
    if along != rank - 1 or by == along:
        raise Refused("blocks along another axis than the last, or rows that are cut from blocks")
    blocks = scales.shape[-1]
    packed = table.dtype == np.uint8 and bits < 8
    if packed and (blocks != -(-table.shape[-1] // block) or table.max(initial=0) >= 1 << bits):
        table = _unpacked(table, bits)
    points = np.full(scales.shape, 1 << (bits - 1) if table.dtype == np.uint8 else 0)
    if node.has(3):
        points = node.fixed(3, "zero points")
        points = _unpacked(points, bits) if packed and points.shape != scales.shape else points
        points = points[..., :blocks]
    extent = table.shape[-1]
    padding = [(0, 0)] * (rank - 1) + [(0, blocks * block - extent)]
    stored = [np.pad(table, padding), scales, points.astype(scales.dtype)]
    places, kind = node.operand(1), str(scales.dtype)
    count = const(table.shape[by], node.dtype(1))
    negative = node.emit(op.less(places, const(0, node.dtype(1))))
    places = node.emit(op.where(negative, node.emit(op.add(places, count)), places))
    values, factors, zeros = (_looked_up(node, each, places, by) for each in stored)
    lead = shape_of(values)[:-1]
    values = node.emit(op.reshape(node.emit(op.astype(values, kind)), [*lead, blocks, block]))
    moved = node.emit(op.subtract(values, node.emit(op.expand_dims(zeros, -1))))
    found = node.emit(op.multiply(moved, node.emit(op.expand_dims(factors, -1))))
    whole = node.emit(op.reshape(found, [*lead, blocks * block]))
    if extent == blocks * block:
        return whole
    return op.strided_slice(whole, [len(lead)], [0], [extent])


def _looked_up(node: Node, table: Array, places: relax.Expr, axis: int) -> relax.Expr:
    shape = [*table.shape[:axis], *shape_of(places), *table.shape[axis + 1 :]]
    flat = node.emit(op.reshape(places, [-1]))
    return node.emit(op.reshape(node.emit(op.take(fixed_tensor(table), flat, axis)), shape))


def _mixture(node: Node) -> relax.Expr:
    """Experts whose weights stand for themselves less the middle of their range."""
    bits, kind = _bits_of(node, "expert_weight_bits", 4), node.dtype(0)
    inputs: list[relax.Expr | None] = [node.operand(0), node.operand(1)]
    for place, weights in enumerate((2, 5, 8)):
        if not node.has(weights):
            continue
        values = _unpacked(node.fixed(weights, "weights"), bits).astype("float32")
        experts, rows, columns = values.shape
        scales = node.fixed(weights + 1, "scales").astype("float32").reshape(experts, rows, -1)
        points: Array = np.full(scales.shape, 1 << (bits - 1))
        if node.has(11 + place):
            given = node.fixed(11 + place, "zero points").reshape(experts, rows, -1)
            points = _unpacked(given, bits)[..., : scales.shape[2]]
        groups = np.arange(columns) // -(-columns // scales.shape[2])
        if block := node.integer("block_size", 0):
            groups = np.arange(columns) // block
        real = (values - points[..., groups]) * scales[..., groups]
        bias = node.operand(weights + 2) if node.has(weights + 2) else None
        inputs += [fixed_tensor(real.astype(kind)), bias]
    return mixture(replace(node, inputs=inputs))


MICROSOFT = {
    "GatherBlockQuantized": _rows,
    "MatMulBnb4": _product_of_floats,
    "MatMulNBits": _product,
    "QMoE": _mixture,
}
