"""One small graph for every pattern of oneDNN's table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from tests.backends_tests.graphs import constant, graph
from tests.contracts.backend_contract import PatternCase

IMAGE = (2, 8, 10, 12)
POSITIVE = ("sqrt", "log", "rsqrt", "power", "divide")
"""Operators whose inputs must not come near zero or below."""


def number(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


def hard_sigmoid(emit: Callable[..., relax.Var], x: relax.Expr) -> relax.Expr:
    scaled = emit(op.multiply(x, number(0.2)))
    return op.clip(emit(op.add(scaled, number(0.5))), 0, 1)


def hard_swish(emit: Callable[..., relax.Var], x: relax.Expr) -> relax.Expr:
    return op.multiply(x, emit(hard_sigmoid(emit, x)))


Activation = Callable[[Callable[..., relax.Var], relax.Expr], relax.Expr]
ACTIVATIONS: Mapping[str, Activation] = {
    "relu": lambda _, x: op.nn.relu(x),
    "clip": lambda _, x: op.clip(x, -0.5, 0.75),
    "sigmoid": lambda _, x: op.sigmoid(x),
    "tanh": lambda _, x: op.tanh(x),
    "leakyrelu": lambda _, x: op.nn.leakyrelu(x, 0.1),
    "gelu": lambda _, x: op.nn.gelu(x),
    "gelu_tanh": lambda _, x: op.nn.gelu_tanh(x),
    "silu": lambda _, x: op.nn.silu(x),
    "hardsigmoid": hard_sigmoid,
    "hardswish": hard_swish,
}


def unary(name: str, function: Callable[..., relax.Expr]) -> tuple[str, tvm.IRModule]:
    return name, graph([(3, 5, 16)], lambda _, x: function(x))


def chain(base: str, *steps: str) -> tuple[str, tvm.IRModule]:
    """A convolution or matrix product followed by bias, residual and activation."""

    def body(emit: Callable[..., relax.Var], x: relax.Var, *residual: relax.Var) -> relax.Expr:
        if base == "conv2d":
            y = op.nn.conv2d(x, constant(16, 8, 3, 3, scale=0.1), padding=(1, 1), strides=(2, 2))
        else:
            y = op.matmul(x, constant(24, 16, scale=0.2))
        for step in steps:
            y = emit(y)
            if step == "bias":
                y = op.add(y, constant(*((1, 16, 1, 1) if base == "conv2d" else (16,))))
            elif step == "add":
                y = op.add(y, residual[0])
            else:
                y = ACTIVATIONS[step](emit, y)
        return y

    shapes: list[tuple[int, ...]] = [IMAGE if base == "conv2d" else (5, 6, 24)]
    if "add" in steps:
        shapes.append((2, 16, 5, 6) if base == "conv2d" else (5, 6, 16))
    return "_".join((base, *steps)), graph(shapes, body)


def chains() -> Iterator[tuple[str, tvm.IRModule]]:
    for base in ("matmul", "conv2d"):
        yield chain(base)
        for activation in ACTIVATIONS:
            yield chain(base, activation)
            yield chain(base, "bias", activation)
        yield chain(base, "bias")
        yield chain(base, "add")
        yield chain(base, "bias", "add")
        yield chain(base, "bias", "add", "clip")
        yield chain(base, "bias", "add", "relu")


def elementwise() -> Iterator[tuple[str, tvm.IRModule]]:
    nn = {name: getattr(op.nn, name) for name in ("relu", "gelu", "gelu_tanh", "silu")}
    names = ("sigmoid", "tanh", "exp", "sqrt", "square", "abs", "log", "negative", "rsqrt")
    for name, function in {**nn, **{n: getattr(op, n) for n in names}}.items():
        yield unary(name, function)
    yield unary("leakyrelu", lambda x: op.nn.leakyrelu(x, 0.1))
    yield unary("clip", lambda x: op.clip(x, -0.5, 0.75))
    yield unary("power", lambda x: op.power(x, number(1.5)))
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
        function = getattr(op, name)
        yield name, graph([(3, 5, 16), (3, 5, 16)], lambda _, a, b, f=function: f(a, b))

    def shifted(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        return op.add(emit(op.multiply(x, constant(1, 8, 1, 1))), constant(1, 8, 1, 1))

    yield "multiply_add", graph([IMAGE], shifted)
    yield "multiply_add_relu", graph([IMAGE], lambda emit, x: op.nn.relu(emit(shifted(emit, x))))
    yield "silu_chain", graph([IMAGE], lambda emit, x: op.multiply(x, emit(op.sigmoid(x))))
    yield "hardsigmoid", graph([IMAGE], hard_sigmoid)
    yield "hardswish", graph([IMAGE], hard_swish)


def movement() -> Iterator[tuple[str, tvm.IRModule]]:
    yield unary("reshape", lambda x: op.reshape(x, (15, 4, 4)))
    yield "squeeze", graph([(3, 1, 5)], lambda _, x: op.squeeze(x, 1))
    yield unary("expand_dims", lambda x: op.expand_dims(x, 1))
    yield unary("flatten", op.flatten)
    yield unary("batch_flatten", op.nn.batch_flatten)
    yield unary("permute_dims", lambda x: op.permute_dims(x, [2, 0, 1]))
    pair = [(2, 8, 5, 6), (2, 16, 5, 6)]
    yield "concat", graph(pair, lambda _, a, b: op.concat([a, b], axis=1))
    yield "split", graph([IMAGE], lambda emit, x: relax.TupleGetItem(emit(op.split(x, 2, 1)), 1))
    yield unary("strided_slice", lambda x: op.strided_slice(x, [1, 2], [1, 3], [4, 15]))
    yield unary("pad", lambda x: op.nn.pad(x, [0, 0, 1, 2, 0, 3]))


def windows() -> Iterator[tuple[str, tvm.IRModule]]:
    nn: Any = op.nn
    pool = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}
    yield "max_pool2d", graph([IMAGE], lambda _, x: nn.max_pool2d(x, **pool))
    yield "avg_pool2d", graph([IMAGE], lambda _, x: nn.avg_pool2d(x, **pool))
    yield "adaptive_avg_pool2d", graph([IMAGE], lambda _, x: nn.adaptive_avg_pool2d(x, (5, 4)))
    for name in ("mean", "sum", "max", "min"):
        function = getattr(op, name)
        yield name, graph([IMAGE], lambda _, x, f=function: f(x, axis=[2, 3], keepdims=True))
    yield unary("softmax", lambda x: nn.softmax(x, axis=-1))
    yield unary("layer_norm", lambda x: nn.layer_norm(x, constant(16), constant(16), axes=[-1]))

    def lrn(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        rows = emit(op.reshape(emit(op.multiply(x, x)), (2, 1, 8, 120)))
        padded = {"padding": (2, 0, 2, 0), "count_include_pad": True}
        pooled = emit(nn.avg_pool2d(rows, pool_size=(5, 1), **padded))
        scaled = emit(op.multiply(emit(op.reshape(pooled, IMAGE)), number(1e-2)))
        base = emit(op.power(emit(op.add(scaled, number(1.5))), number(0.75)))
        return op.divide(x, base)

    def shuffle(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        grouped = emit(op.reshape(x, (2, 2, 4, 10, 12)))
        return op.reshape(emit(op.permute_dims(grouped, [0, 2, 1, 3, 4])), IMAGE)

    yield "lrn", graph([IMAGE], lrn)
    yield "channel_shuffle", graph([IMAGE], shuffle)


def all_cases() -> list[PatternCase]:
    """One case per pattern."""
    cases = []
    for source in (movement, elementwise, windows, chains):
        for name, mod in source():
            low = 0.5 if name in POSITIVE else -2.0
            cases.append(PatternCase(f"onednn.{name}", mod, low))
    return cases
