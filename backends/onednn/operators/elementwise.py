"""Importers of unary and binary elementwise operators."""

from __future__ import annotations

import math

import tvm
from tvm import relax

from collage.backends.onednn.graph import COMMUTATIVE, Binary, Eltwise, OpKind, Tensor
from collage.backends.onednn.partition import Importer, handles

UNARY: dict[str, tuple[Eltwise, float, float]] = {
    "nn.relu": (Eltwise.RELU, 0.0, 0.0),
    "sigmoid": (Eltwise.LOGISTIC, 0.0, 0.0),
    "tanh": (Eltwise.TANH, 0.0, 0.0),
    "nn.gelu": (Eltwise.GELU_ERF, 0.0, 0.0),
    "nn.gelu_tanh": (Eltwise.GELU_TANH, 0.0, 0.0),
    "nn.silu": (Eltwise.SWISH, 1.0, 0.0),
    "exp": (Eltwise.EXP, 0.0, 0.0),
    "sqrt": (Eltwise.SQRT, 0.0, 0.0),
    "square": (Eltwise.SQUARE, 0.0, 0.0),
    "abs": (Eltwise.ABS, 0.0, 0.0),
    "log": (Eltwise.LOG, 0.0, 0.0),
    "negative": (Eltwise.LINEAR, -1.0, 0.0),
    "rsqrt": (Eltwise.POW, 1.0, -0.5),
}
"""One-operand operators, by Relax name without ``relax.``, with alpha and beta."""

BINARY: dict[str, Binary] = {
    "add": Binary.ADD,
    "subtract": Binary.SUB,
    "multiply": Binary.MUL,
    "divide": Binary.DIV,
    "maximum": Binary.MAX,
    "minimum": Binary.MIN,
}
"""Two-operand operators, by Relax name without ``relax.``."""


@handles(*UNARY)
def _unary(imp: Importer, call: relax.Call) -> Tensor:
    algorithm, alpha, beta = UNARY[str(call.op.name).removeprefix("relax.")]
    return imp.graph.eltwise(imp.tensor(call.args[0]), algorithm, alpha, beta)


@handles("nn.leakyrelu")
def _leakyrelu(imp: Importer, call: relax.Call) -> Tensor:
    return imp.graph.eltwise(imp.tensor(call.args[0]), Eltwise.RELU, float(call.attrs.alpha))


@handles("nn.softplus")
def _softplus(imp: Importer, call: relax.Call) -> Tensor:
    return imp.graph.eltwise(imp.tensor(call.args[0]), Eltwise.SOFT_RELU, float(call.attrs.beta))


@handles("nn.prelu")
def _prelu(imp: Importer, call: relax.Call) -> Tensor:
    x, slopes = imp.tensor(call.args[0]), imp.tensor(call.args[1])
    if slopes.is_scalar_constant():
        return imp.graph.eltwise(x, Eltwise.RELU, slopes.scalar())
    slopes = imp.graph.reshape(slopes, (1, *slopes.shape, *(1,) * (len(x.shape) - 2)))
    return imp.graph.add(OpKind.BINARY, [x, slopes], x.shape, [Binary.PRELU])


def number(expr: relax.Expr) -> float:
    """The value of a number in argument position."""
    if isinstance(expr, tvm.ir.GenericConst):
        return float(expr.value.numpy())
    return float(getattr(expr, "value", expr))


@handles("clip")
def _clip(imp: Importer, call: relax.Call) -> Tensor:
    low, high = number(call.args[1]), number(call.args[2])
    return imp.graph.eltwise(imp.tensor(call.args[0]), Eltwise.CLIP, low, high)


@handles("power")
def _power(imp: Importer, call: relax.Call) -> Tensor:
    base, exponent = imp.tensor(call.args[0]), imp.tensor(call.args[1])
    if not exponent.is_scalar_constant():
        raise imp.error("power needs a constant number as exponent")
    return imp.graph.eltwise(base, Eltwise.POW, 1.0, exponent.scalar())


@handles(*BINARY)
def _binary(imp: Importer, call: relax.Call) -> Tensor:
    a, b = imp.tensor(call.args[0]), imp.tensor(call.args[1])
    algorithm = BINARY[str(call.op.name).removeprefix("relax.")]
    shape = imp.shape(call)
    if b.is_scalar_constant() and a.shape == shape:
        return _with_number(imp, a, algorithm, b.scalar())
    if a.is_scalar_constant() and b.shape == shape:
        return _number_with(imp, a.scalar(), algorithm, b)
    if a is b and algorithm is Binary.MUL:
        return imp.graph.eltwise(a, Eltwise.SQUARE)
    if a.shape != shape:
        # oneDNN broadcasts the second operand only.
        if algorithm is Binary.SUB:
            b, algorithm = imp.graph.eltwise(b, Eltwise.LINEAR, -1.0), Binary.ADD
        elif algorithm is Binary.DIV:
            b, algorithm = imp.graph.eltwise(b, Eltwise.POW, 1.0, -1.0), Binary.MUL
        assert algorithm in COMMUTATIVE
        a, b = b, a
    if a.shape != shape:
        raise imp.error(f"both operands of {call.op.name} are broadcast to {shape}")
    b = imp.graph.reshape(b, (1,) * (len(shape) - len(b.shape)) + b.shape)
    return imp.graph.add(OpKind.BINARY, [a, b], shape, [algorithm])


def _with_number(imp: Importer, x: Tensor, algorithm: Binary, value: float) -> Tensor:
    linear = {
        Binary.ADD: (1.0, value),
        Binary.SUB: (1.0, -value),
        Binary.MUL: (value, 0.0),
        Binary.DIV: (1.0 / value if value else math.inf, 0.0),
    }
    if algorithm in linear:
        return imp.graph.eltwise(x, Eltwise.LINEAR, *linear[algorithm])
    if algorithm is Binary.MAX:
        return imp.graph.eltwise(x, Eltwise.CLIP, value, math.inf)
    return imp.graph.eltwise(x, Eltwise.CLIP, -math.inf, value)


def _number_with(imp: Importer, value: float, algorithm: Binary, x: Tensor) -> Tensor:
    if algorithm is Binary.SUB:
        return imp.graph.eltwise(x, Eltwise.LINEAR, -1.0, value)
    if algorithm is Binary.DIV:
        return imp.graph.eltwise(x, Eltwise.POW, value, -1.0)
    return _with_number(imp, x, algorithm, value)
