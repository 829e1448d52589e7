"""onnxruntime's operators that take and give 8-bit integers, beyond those of sums and products."""

from __future__ import annotations

import math
from dataclasses import replace

from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx.onnx_frontend import AveragePool, MaxPool

from collage.importers.onnx.operators import quantized
from collage.importers.onnx.operators.microsoft.attention import attention_of
from collage.importers.onnx.operators.microsoft.optimized import meant, of_one, rounded
from collage.importers.onnx.operators.node import Converter, Node, shape_of
from collage.importers.onnx.operators.windows import pooling

_ONE_AXIS_SINCE = 13
"""Earlier operator sets had a softmax over all axes from the given one on."""


def _softmax(node: Node, x: relax.Expr) -> relax.Expr:
    shape = shape_of(x)
    axis = node.integer("axis", -1) % len(shape)
    if node.integer("opset", _ONE_AXIS_SINCE) >= _ONE_AXIS_SINCE:
        return op.nn.softmax(x, axis)
    rows = node.emit(op.reshape(x, [math.prod(shape[:axis]), math.prod(shape[axis:])]))
    return op.reshape(node.emit(op.nn.softmax(rows, 1)), shape)


def _pool(node: Node, x: relax.Expr) -> relax.Expr:
    convert = AveragePool.get_converter(node.opset)
    return convert(node.builder, [x], node.attributes, [{}, {}])


def _max_pool(node: Node) -> relax.Expr:
    found = pooling.CONVERTERS["MaxPool"](node)
    if found is not None:
        return found
    convert = MaxPool.get_converter(node.opset)
    return convert(node.builder, node.inputs, node.attributes, [{}, {}])


def _channels_second(convert: Converter, always: bool = False) -> Converter:
    """Of a converter that wants channels second, one of data that may have them last."""

    def converted(node: Node) -> relax.Expr | None:
        if not (always or node.integer("channels_last", 0)):
            return convert(node)
        rank = len(node.shape(0))
        x = node.emit(op.permute_dims(node.operand(0), [0, rank - 1, *range(1, rank - 1)]))
        found = convert(replace(node, inputs=[x, *node.inputs[1:]]))
        return op.permute_dims(node.emit(found), [0, *range(2, rank), 1])

    return converted


def _mean(node: Node, x: relax.Expr) -> relax.Expr:
    axes = node.integers("axes", range(len(shape_of(x))))
    return op.mean(x, axes, keepdims=bool(node.integer("keepdims", 1)))


def _where(node: Node) -> relax.Expr:
    chosen = op.where(node.operand(0), meant(node, 1, 2, 3), meant(node, 4, 5, 6))
    return rounded(node, node.emit(chosen), 7, 8, node.dtype(1))


def _attention(node: Node) -> relax.Expr:
    """Its projection is a product of integers, all else is computed with real numbers."""
    x = node.emit(op.matmul(meant(node, 0, 3, 6), meant(node, 1, 4, 7)))
    x = node.emit(op.add(x, node.operand(2)))
    return attention_of(node, x, mask=5, past=8, bias=None)


MICROSOFT = {
    "NhwcMaxPool": _channels_second(_max_pool, always=True),
    "QAttention": _attention,
    "QLinearAveragePool": _channels_second(of_one(_pool)),
    "QLinearConv": _channels_second(quantized.CONVERTERS["QLinearConv"]),
    "QLinearReduceMean": of_one(_mean),
    "QLinearSoftmax": of_one(_softmax),
    "QLinearWhere": _where,
}
