"""Quantized operators: exact sums in 32-bit integers, scaled and rounded at the end."""

from __future__ import annotations

import numpy as np
from onnx import helper
from tvm import relax
from tvm.relax import op

from collage.backends.relax.stepped import in_steps
from collage.importers.onnx.operators.convolution import Window, convolve
from collage.importers.onnx.operators.node import (
    Node,
    Refused,
    dtype_of,
    fixed_tensor,
    shape_of,
    vector_shape,
)

_WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


def _along(node: Node, values: relax.Expr, rank: int, axis: int) -> relax.Expr:
    """A vector as a tensor that is broadcast along all other axes; anything else as it is."""
    shape = shape_of(values)
    if len(shape) != 1:
        return values
    return node.emit(op.reshape(values, vector_shape(rank, axis, shape[0])))


def _centred(node: Node, x: int, zero: int, axis: int) -> relax.Expr:
    """The integers of an input without its zero point, which may be one for each slice."""
    rank, known = len(node.shape(x)), (node.constant(x), node.constant(zero))
    if known[0] is not None and (known[1] is not None or not node.has(zero)):
        whole = known[0].astype("int32")
        if known[1] is not None:
            point = known[1].astype("int32")
            along = vector_shape(rank, axis % rank, point.size)
            whole = whole - (point.reshape(along) if point.ndim == 1 else point)
        return fixed_tensor(whole)
    values = node.emit(op.astype(node.operand(x), "int32"))
    if not node.has(zero):
        return values
    point = _along(node, node.emit(op.astype(node.operand(zero), "int32")), rank, axis % rank)
    return node.emit(op.subtract(values, point))


def _requantized(
    node: Node, total: relax.Expr, factor: relax.Expr, scale: int, zero: int
) -> relax.Expr:
    """A sum times a factor, in the element type and range of the result."""
    emit = node.emit
    ratio = emit(op.divide(factor, emit(op.astype(node.operand(scale), "float32"))))
    real = emit(op.multiply(emit(op.astype(total, "float32")), ratio))
    point = node.operand(zero)
    limits = np.iinfo(dtype_of(point))
    shifted = emit(op.add(emit(op.round(real)), emit(op.astype(point, "float32"))))
    return emit(op.astype(emit(op.clip(shifted, limits.min, limits.max)), dtype_of(point)))


def _as_float(node: Node, index: int, rank: int, axis: int) -> relax.Expr:
    return _along(node, node.emit(op.astype(node.operand(index), "float32")), rank, axis % rank)


def _matmul_integer(node: Node) -> relax.Expr:
    left, right = _centred(node, 0, 2, -2), _centred(node, 1, 3, -1)
    return node.emit(op.matmul(left, right, out_dtype="int32"))


def _qlinear_matmul(node: Node) -> relax.Expr:
    _require_integers(node, 0, 3, 7)
    left, right = _centred(node, 0, 2, -2), _centred(node, 3, 5, -1)
    total = node.emit(op.matmul(left, right, out_dtype="int32"))
    rank = len(shape_of(total))
    scales = _as_float(node, 1, rank, -2), _as_float(node, 4, rank, -1)
    return _requantized(node, total, node.emit(op.multiply(*scales)), 6, 7)


def _conv_integer(node: Node) -> relax.Expr:
    data, weight = _centred(node, 0, 2, 1), _centred(node, 1, 3, 0)
    return convolve(node, data, weight, Window.of(node, node.shape(0), node.shape(1)), "int32")


def _qlinear_conv(node: Node) -> relax.Expr:
    _require_integers(node, 0, 3, 7)
    data, weight = _centred(node, 0, 2, 1), _centred(node, 3, 5, 0)
    window = Window.of(node, node.shape(0), node.shape(3))
    total = convolve(node, data, weight, window, "int32")
    rank = len(shape_of(total))
    if node.has(8):
        total = node.emit(op.add(total, _along(node, node.operand(8), rank, 1)))
    scales = _as_float(node, 1, rank, 1), _as_float(node, 4, rank, 1)
    return _requantized(node, total, node.emit(op.multiply(*scales)), 6, 7)


def _require_integers(node: Node, *indices: int) -> None:
    for index in indices:
        if "int" not in node.dtype(index):
            raise Refused(f"{node.dtype(index)} in place of 8-bit integers")


def _blocked(node: Node, index: int) -> relax.Expr:
    """A scale or zero point with one value for each block of the axis, spread over the axis."""
    axis = node.integer("axis", 1) % len(node.shape(0))
    block = node.integer("block_size", 0)
    spread = node.emit(op.repeat(node.operand(index), block, axis))
    extent = node.shape(0)[axis]
    if shape_of(spread)[axis] == extent:
        return spread
    return node.emit(op.strided_slice(spread, [axis], [0], [extent]))


def _quantize(node: Node) -> relax.Expr | None:
    """TVM's, but for scales by blocks."""
    named = node.integer("output_dtype", 0)
    kind = node.dtype(2) if node.has(2) else "uint8"
    if named and not node.has(2):
        kind = helper.tensor_dtype_to_np_dtype(named).name
    if kind not in _WHOLE:
        raise Refused(f"{kind} is not a type that is computed with here")
    if not node.integer("block_size", 0):
        return None
    emit, limits = node.emit, np.iinfo(kind)
    shifted = emit(op.round(emit(op.divide(node.operand(0), _blocked(node, 1)))))
    if node.has(2):
        point = emit(op.astype(_blocked(node, 2), dtype_of(shifted)))
        shifted = emit(op.add(shifted, point))
    return emit(op.astype(emit(op.clip(shifted, limits.min, limits.max)), kind))


def _dequantize(node: Node) -> relax.Expr | None:
    """TVM's, but for scales by blocks."""
    if node.dtype(0) not in _WHOLE:
        raise Refused(f"{node.dtype(0)} is not a type that is computed with here")
    if not node.integer("block_size", 0):
        return None
    emit, kind = node.emit, node.dtype(1)
    values = emit(op.astype(node.operand(0), "int32"))
    if node.has(2):
        values = emit(op.subtract(values, emit(op.astype(_blocked(node, 2), "int32"))))
    return emit(op.multiply(emit(op.astype(values, kind)), _blocked(node, 1)))


def _dynamic_quantize(node: Node) -> relax.Expr:
    """To unsigned bytes, over the range of the values themselves."""
    values, scale, point = in_steps(node.emit, node.operand(0))
    emit = node.emit
    values, point = (emit(op.astype(x, "uint8")) for x in (values, point))
    return relax.Tuple([values, scale, point])


CONVERTERS = {
    "MatMulInteger": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
    "ConvInteger": _conv_integer,
    "QLinearConv": _qlinear_conv,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
}
