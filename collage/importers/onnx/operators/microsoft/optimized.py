"""onnxruntime's own operators, as its quantizer and its optimizer write them into files.

Those that take and give 8-bit integers are computed as their definition says: as real numbers,
rounded at the end. Products of integers times scales come to the same as products of what they
stand for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.backends.relax.stepped import is_product, stepped, stepped_matmul
from collage.importers.onnx.operators import quantized
from collage.importers.onnx.operators.node import (
    Array,
    Converter,
    Node,
    Refused,
    const,
    dtype_of,
    shape_of,
)
from collage.importers.onnx.operators.windows.convolution import Window, convolve

_DEFAULTS = {"leakyrelu": (0.01,), "hardsigmoid": (0.2, 0.5), "clip": (-np.inf, np.inf)}


def meant(node: Node, x: int, scale: int, zero: int) -> relax.Expr:
    """The real numbers that an input's integers stand for; scales may be one for each column.

    Parameters
    ----------
    node : Node
        Whose inputs they are.
    x, scale, zero : int
        Of integers, how much one is worth, and which of them is zero.

    Returns
    -------
    relax.Expr
        In float32.
    """
    real = quantized.meant(node, x, scale, zero)
    if real is not None:
        return real
    values = node.emit(op.astype(node.operand(x), "int32"))
    if node.has(zero):
        values = node.emit(op.subtract(values, node.emit(op.astype(node.operand(zero), "int32"))))
    return node.emit(op.multiply(node.emit(op.astype(values, "float32")), node.operand(scale)))


def rounded(node: Node, y: relax.Expr, scale: int, zero: int, kind: str) -> relax.Expr:
    """Real numbers as the integers that stand for them.

    Parameters
    ----------
    node : Node
        Whose result they are.
    y : relax.Expr
        The real numbers.
    scale, zero : int
        Inputs: how much an integer is worth, and which of them is zero.
    kind : str
        The integers' element type.

    Returns
    -------
    relax.Expr
        Of the kind, beyond its range the nearest in it.
    """
    made = quantized.rounded(node, y, scale, zero, kind)
    if made is not None:
        return made
    emit, limits = node.emit, np.iinfo(kind)
    steps = emit(op.round(emit(op.divide(y, node.operand(scale)))))
    if node.has(zero):
        steps = emit(op.add(steps, emit(op.astype(node.operand(zero), "float32"))))
    return emit(op.astype(emit(op.clip(steps, limits.min, limits.max)), kind))


def _of_two(function: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    def convert(node: Node) -> relax.Expr:
        result = node.emit(function(meant(node, 0, 1, 2), meant(node, 3, 4, 5)))
        return rounded(node, result, 6, 7, node.dtype(0))

    return convert


def of_one(function: Callable[[Node, relax.Expr], relax.Expr]) -> Converter:
    """Inputs: integers, their scale and zero, the result's."""

    def convert(node: Node) -> relax.Expr:
        result = node.emit(function(node, meant(node, 0, 1, 2)))
        return rounded(node, result, 3, 4, node.dtype(0))

    return convert


def _mean_of_all_places(node: Node, x: relax.Expr) -> relax.Expr:
    rank = len(shape_of(x))
    last = node.integer("channels_last", 0)
    return op.mean(x, list(range(1, rank - 1) if last else range(2, rank)), keepdims=True)


def _joined(node: Node) -> relax.Expr:
    """Inputs in threes behind the result's scale and zero: integers, scale, zero."""
    parts = [meant(node, i, i + 1, i + 2) for i in range(2, len(node.inputs), 3)]
    whole = node.emit(op.concat(parts, node.integer("axis", 0)))
    return rounded(node, whole, 0, 1, node.dtype(2))


def _quantized_gemm(node: Node) -> relax.Expr:
    """Inputs: a, b, and c in steps of both; the result's steps, where it is rounded."""
    known = quantized.meant(node, 3, 4, 5, 0 if node.integer("transB", 0) else 1)
    right = meant(node, 3, 4, 5) if known is None else known
    if known is None and node.shape(4) not in ([], [1]) and node.integer("transB", 0):
        raise Refused("scales of columns that are computed while the model runs")
    left, right = _turned(node, meant(node, 0, 1, 2), "transA"), _turned(node, right, "transB")
    alpha = node.number("alpha", 1.0)
    total = _times(node, node.emit(op.matmul(left, right)), alpha)
    if node.has(6):
        step = node.emit(op.multiply(node.operand(1), node.operand(4)))
        c = node.emit(op.astype(node.operand(6), "float32"))
        c = _times(node, node.emit(op.multiply(c, step)), alpha)
        total = node.emit(op.add(total, c))
    return rounded(node, total, 7, 8, node.dtype(8)) if node.has(7) else total


def _turned(node: Node, x: relax.Expr, name: str) -> relax.Expr:
    """A matrix, or a stack of them, transposed where an attribute says so."""
    if not node.integer(name, 0):
        return x
    rank = len(shape_of(x))
    return node.emit(op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2]))


def fused_matmul(node: Node) -> relax.Expr:
    """A product of matrices that attributes transpose, times a factor.

    Parameters
    ----------
    node : Node
        Whose first two inputs they are.

    Returns
    -------
    relax.Expr
        The product.
    """
    left, right = (
        _turned(node, _rows_first(node, node.operand(i), f"transBatch{name}"), f"trans{name}")
        for i, name in enumerate("AB")
    )
    return _times(node, node.emit(op.matmul(left, right)), node.number("alpha", 1.0))


def _rows_first(node: Node, x: relax.Expr, name: str) -> relax.Expr:
    """Matrices whose rows stand before the stack's own axes, where an attribute says so."""
    rank = len(shape_of(x))
    if not node.integer(name, 0) or rank < 3:
        return x
    return node.emit(op.permute_dims(x, [*range(1, rank - 1), 0, rank - 1]))


def _times(node: Node, x: relax.Expr, factor: float) -> relax.Expr:
    return x if factor == 1.0 else node.emit(op.multiply(x, const(factor, dtype_of(x))))


def _dynamic_matmul(node: Node) -> relax.Expr:
    """What comes in is rounded to 256 steps over its own range."""
    whole, scales = _whole_weights(node, 1, 3), node.constant(2)
    if whole is not None and scales is not None and is_product(whole, node.shape(0)):
        made = stepped_matmul(node.operand(0), whole, scales.reshape(-1))
        return with_bias(node, node.emit(made), 4)
    product = op.matmul(stepped(node.emit, node.operand(0)), meant(node, 1, 2, 3))
    return with_bias(node, node.emit(product), 4)


def _whole_weights(node: Node, index: int, zero: int) -> Array | None:
    """Weights less their zero points, where both are known."""
    values, points = node.constant(index), node.constant(zero)
    if values is None or (points is None and node.has(zero)):
        return None
    whole: Array = values.astype("int32")
    return whole if points is None else whole - points.astype("int32")


def _matmul_to_float(node: Node) -> relax.Expr:
    product = node.emit(op.matmul(meant(node, 0, 2, 4), meant(node, 1, 3, 5)))
    return with_bias(node, product, 6)


def with_bias(node: Node, x: relax.Expr, index: int) -> relax.Expr:
    """A sum with an input, where it is there.

    Parameters
    ----------
    node : Node
        Whose input it is.
    x : relax.Expr
        What it is added to.
    index : int
        Of the input.

    Returns
    -------
    relax.Expr
        The sum, or what was given.
    """
    return node.emit(op.add(x, node.operand(index))) if node.has(index) else x


def _fused_conv(node: Node) -> relax.Expr:
    window = Window.of(node, node.shape(0), node.shape(1))
    x = convolve(node, node.operand(0), node.operand(1), window, node.dtype(0))
    if node.has(2):
        column = [1, node.shape(2)[0]] + [1] * (len(node.shape(0)) - 2)
        x = node.emit(op.add(x, node.emit(op.reshape(node.operand(2), column))))
    x = with_bias(node, x, 3)
    return activated(node, x, [float(v) for v in node.attributes.get("activation_params", ())])


def _fused_gemm(node: Node) -> relax.Expr:
    x = fused_matmul(node)
    if node.has(2):
        x = node.emit(op.add(x, _times(node, node.operand(2), node.number("beta", 1.0))))
    names = [f"activation_{which}" for which in ("alpha", "beta", "gamma")]
    return activated(node, x, [node.number(n, 0.0) for n in names if n in node.attributes])


def activated(node: Node, x: relax.Expr, given: list[float]) -> relax.Expr:
    """What an activation that an attribute names makes of a result.

    Parameters
    ----------
    node : Node
        With the attribute.
    x : relax.Expr
        The result.
    given : list of float
        The activation's parameters; those that are missing are as ONNX has them.

    Returns
    -------
    relax.Expr
        What was given, where there is no activation.

    Raises
    ------
    Refused
        For activations that are not known.
    """
    emit, kind = node.emit, node.text("activation", "").lower()
    first, second = (*given, *_DEFAULTS.get(kind, ())[len(given) :], 0.0, 0.0)[:2]

    def hard_sigmoid(x: relax.Expr) -> relax.Expr:
        shifted = emit(op.add(_times(node, x, first), const(second, dtype_of(x))))
        return op.clip(shifted, 0.0, 1.0)

    functions: dict[str, Callable[[relax.Expr], relax.Expr]] = {
        "": lambda x: x,
        "relu": op.nn.relu,
        "tanh": op.tanh,
        "sigmoid": op.sigmoid,
        "leakyrelu": lambda x: op.nn.leakyrelu(x, first),
        "clip": lambda x: op.clip(x, first, second),
        "hardsigmoid": hard_sigmoid,
    }
    if kind not in functions:
        raise Refused(f"the activation '{kind}'")
    return emit(functions[kind](x))


def _quick_gelu(node: Node) -> relax.Expr:
    x = node.operand(0)
    gate = node.emit(op.sigmoid(_times(node, x, node.number("alpha", 1.702))))
    return node.emit(op.multiply(x, gate))


def _distances(node: Node) -> relax.Expr:
    """Between all rows of one matrix and all of another, as scikit-learn's neighbours want them."""
    metric, emit = node.text("metric", "sqeuclidean"), node.emit
    if metric not in ("euclidean", "sqeuclidean"):
        raise Refused(f"the metric '{metric}'")
    x, y = (emit(op.expand_dims(node.operand(i), 1 - i)) for i in range(2))
    apart = emit(op.subtract(x, y))
    squares = emit(op.sum(emit(op.multiply(apart, apart)), [2]))
    return op.sqrt(squares) if metric == "euclidean" else squares


MICROSOFT = {
    "CDist": _distances,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": fused_matmul,
    "MatMulIntegerToFloat": _matmul_to_float,
    "QGemm": _quantized_gemm,
    "QLinearAdd": _of_two(op.add),
    "QLinearConcat": _joined,
    "QLinearGlobalAveragePool": of_one(_mean_of_all_places),
    "QLinearLeakyRelu": of_one(lambda node, x: op.nn.leakyrelu(x, node.number("alpha", 0.01))),
    "QLinearMul": _of_two(op.multiply),
    "QLinearSigmoid": of_one(lambda node, x: op.sigmoid(x)),
    "QuickGelu": _quick_gelu,
    "TransposeMatMul": fused_matmul,
}
