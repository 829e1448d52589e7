"""Quantized operators: exact sums in 32-bit integers, scaled and rounded at the end."""

from __future__ import annotations

import numpy as np
from onnx import helper
from tvm import relax
from tvm.relax import op

from collage.backends.relax.stepped import in_steps
from collage.importers.onnx.operators.node import (
    Node,
    Refused,
    dtype_of,
    fixed_tensor,
    shape_of,
    vector_shape,
)
from collage.importers.onnx.operators.windows.convolution import Window, convolve

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


def meant(node: Node, x: int, scale: int, zero: int, axis: int = -1) -> relax.Expr | None:
    """``DequantizeLinear`` of an input, whose steps are known; None where they are not.

    Parameters
    ----------
    node : Node
        That reads it.
    x, scale, zero : int
        Which of its inputs are the integers, their steps, and where zero is.
    axis : int
        Along which there is one step for each slice, where there is more than one.

    Returns
    -------
    relax.Expr or None
        In float32.
    """
    steps = _steps(node, scale, zero, node.dtype(x))
    rank = len(node.shape(x))
    if steps is None or rank == 0:
        return None
    return node.emit(op.dequantize(node.operand(x), *steps, axis=axis % rank))


def rounded(node: Node, y: relax.Expr, scale: int, zero: int, kind: str) -> relax.Expr | None:
    """``QuantizeLinear`` to steps that are known; None where they are not.

    Parameters
    ----------
    node : Node
        Whose result it is.
    y : relax.Expr
        float32.
    scale, zero : int
        Which of its inputs are the steps, and where zero is.
    kind : str
        The element type of the result.

    Returns
    -------
    relax.Expr or None
        Of the kind.
    """
    steps = _steps(node, scale, zero, kind)
    if steps is None or not shape_of(y):
        return None
    return node.emit(op.quantize(y, *steps, axis=len(shape_of(y)) - 1, out_dtype=kind))


def _steps(node: Node, scale: int, zero: int, kind: str) -> tuple[relax.Expr, relax.Expr] | None:
    """Scales and zero points as constants of the same shape."""
    scales, zeros = node.constant(scale), node.constant(zero)
    if scales is None or (zeros is None and node.has(zero)) or kind not in ("int8", "uint8"):
        return None
    if str(scales.dtype) != "float32" or max(scales.ndim, 0 if zeros is None else zeros.ndim) > 1:
        return None
    points = np.zeros((), kind) if zeros is None else zeros.astype(kind)
    if scales.size == points.size == 1:
        return fixed_tensor(scales.reshape(())), fixed_tensor(points.reshape(()))
    both = np.broadcast_arrays(scales, points)
    return fixed_tensor(np.array(both[0])), fixed_tensor(np.array(both[1]))


def _matmul_integer(node: Node) -> relax.Expr:
    left, right = _centred(node, 0, 2, -2), _centred(node, 1, 3, -1)
    return node.emit(op.matmul(left, right, out_dtype="int32"))


def _qlinear_matmul(node: Node) -> relax.Expr:
    _require_integers(node, 0, 3, 7)
    reals = meant(node, 0, 1, 2, -2), meant(node, 3, 4, 5, -1)
    if reals[0] is not None and reals[1] is not None and node.constant(3) is not None:
        made = rounded(node, node.emit(op.matmul(*reals)), 6, 7, node.dtype(7))
        if made is not None:
            return made
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
    if (made := _real_conv(node)) is not None:
        return made
    data, weight = _centred(node, 0, 2, 1), _centred(node, 3, 5, 0)
    window = Window.of(node, node.shape(0), node.shape(3))
    total = convolve(node, data, weight, window, "int32")
    rank = len(shape_of(total))
    if node.has(8):
        total = node.emit(op.add(total, _along(node, node.operand(8), rank, 1)))
    scales = _as_float(node, 1, rank, 1), _as_float(node, 4, rank, 1)
    return _requantized(node, total, node.emit(op.multiply(*scales)), 6, 7)


def _real_conv(node: Node) -> relax.Expr | None:
    """As the product of what bytes stand for, rounded; None where something is not known now."""
    x, weight = meant(node, 0, 1, 2), meant(node, 3, 4, 5, 0)
    if x is None or weight is None or node.constant(3) is None:
        return None
    bias, scales = node.constant(8), (node.constant(1), node.constant(4))
    if node.has(8) and bias is None:
        return None
    real = convolve(node, x, weight, Window.of(node, node.shape(0), node.shape(3)), "float32")
    if bias is not None and scales[0] is not None and scales[1] is not None:
        whole = bias.astype("float64") * scales[0].astype("float64") * scales[1]
        along = vector_shape(len(shape_of(real)), 1, bias.size)
        real = node.emit(op.add(real, fixed_tensor(whole.astype("float32").reshape(along))))
    return rounded(node, real, 6, 7, node.dtype(7))


def _require_integers(node: Node, *indices: int) -> None:
    for index in indices:
        if "int" not in node.dtype(index):
            raise Refused(f"{node.dtype(index)} in place of 8-bit integers")


def _spread(node: Node, index: int) -> relax.Expr:
    """A scale or zero point as it is broadcast; of blocks, spread over the axis."""
    rank, block = len(node.shape(0)), node.integer("block_size", 0)
    if not block:
        return _along(node, node.operand(index), rank, node.integer("axis", 1) % max(1, rank))
    axis = node.integer("axis", 1) % rank
    spread = node.emit(op.repeat(node.operand(index), block, axis))
    extent = node.shape(0)[axis]
    if shape_of(spread)[axis] == extent:
        return spread
    return node.emit(op.strided_slice(spread, [axis], [0], [extent]))


def _quantize(node: Node) -> relax.Expr | None:
    """TVM's, but for scales by blocks and of bfloat16."""
    named = node.integer("output_dtype", 0)
    kind = node.dtype(2) if node.has(2) else "uint8"
    if named and not node.has(2):
        kind = helper.tensor_dtype_to_np_dtype(named).name
    if kind not in _WHOLE:
        raise Refused(f"{kind} is not a type that is computed with here")
    if not node.integer("block_size", 0) and node.dtype(0) != "bfloat16":
        return None
    emit, limits = node.emit, np.iinfo(kind)
    scale = emit(op.astype(_spread(node, 1), node.dtype(0)))
    shifted = emit(op.divide(node.operand(0), scale))
    if dtype_of(shifted) == "bfloat16":
        # It has fewer whole numbers than a byte and its zero point need.
        shifted = emit(op.astype(shifted, "float32"))
    shifted = emit(op.round(shifted))
    if node.has(2):
        point = emit(op.astype(_spread(node, 2), dtype_of(shifted)))
        shifted = emit(op.add(shifted, point))
    return emit(op.astype(emit(op.clip(shifted, limits.min, limits.max)), kind))


def _dequantize(node: Node) -> relax.Expr | None:
    """TVM's, but for scales by blocks and of bfloat16."""
    if node.dtype(0) not in _WHOLE:
        raise Refused(f"{node.dtype(0)} is not a type that is computed with here")
    if not node.integer("block_size", 0) and node.dtype(1) != "bfloat16":
        return None
    emit, kind = node.emit, node.dtype(1)
    values = emit(op.astype(node.operand(0), "int32"))
    if node.has(2):
        values = emit(op.subtract(values, emit(op.astype(_spread(node, 2), "int32"))))
    return emit(op.multiply(emit(op.astype(values, kind)), _spread(node, 1)))


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
