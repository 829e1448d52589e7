"""One graph for every pattern of the oneDNN backend, built from the pattern's name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.stepped import stepped_matmul
from collage.testing.backend_cases import PatternCase
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.recurrent_layers import layer

Step = Callable[[Emit, relax.Expr], relax.Expr]


RANDOM = np.random.default_rng()


def number(value: float) -> relax.Expr:
    """A scalar constant."""
    return relax.const(np.float32(value))


def hard_sigmoid(emit: Emit, x: relax.Expr) -> relax.Expr:
    shifted = emit(op.add(emit(op.multiply(x, number(1 / 6))), number(0.5)))
    return op.clip(shifted, 0, 1)


ACTIVATIONS: dict[str, Step] = {
    "relu": lambda emit, x: op.nn.relu(x),
    "clip": lambda emit, x: op.clip(x, -0.5, 0.75),
    "sigmoid": lambda emit, x: op.sigmoid(x),
    "tanh": lambda emit, x: op.tanh(x),
    "gelu": lambda emit, x: op.nn.gelu(x),
    "gelu_tanh": lambda emit, x: op.nn.gelu_tanh(x),
    "silu": lambda emit, x: op.nn.silu(x),
    "leakyrelu": lambda emit, x: op.nn.leakyrelu(x, 0.1),
    "hardsigmoid": hard_sigmoid,
    "hardswish": lambda emit, x: op.multiply(x, emit(hard_sigmoid(emit, x))),
}

UNARY: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "exp": op.exp,
    "square": op.square,
    "abs": op.abs,
    "negative": op.negative,
}
POSITIVE: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "sqrt": op.sqrt,
    "log": op.log,
    "rsqrt": op.rsqrt,
}
BINARY: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "add": op.add,
    "subtract": op.subtract,
    "multiply": op.multiply,
    "divide": op.divide,
    "maximum": op.maximum,
    "minimum": op.minimum,
}


def lrn(emit: Emit, x: relax.Expr, shape: tuple[int, ...], size: int = 5) -> relax.Expr:
    """Local response normalization across channels, in canonical form."""
    batch, channels, height, width = shape
    rows = emit(op.reshape(emit(op.multiply(x, x)), (batch, 1, channels, height * width)))
    pooled = emit(
        op.nn.avg_pool2d(
            rows, (size, 1), (1, 1), (size // 2, 0, size // 2, 0), count_include_pad=True
        )
    )
    scaled = emit(op.multiply(emit(op.reshape(pooled, shape)), number(0.5)))
    base = emit(op.add(scaled, number(1.5)))
    return op.divide(x, emit(op.power(base, number(0.75))))


def shuffle(emit: Emit, x: relax.Expr, shape: tuple[int, ...], groups: int) -> relax.Expr:
    """ShuffleNet's regrouping of channels."""
    batch, channels, height, width = shape
    grouped = emit(op.reshape(x, (batch, groups, channels // groups, height, width)))
    return op.reshape(emit(op.permute_dims(grouped, [0, 2, 1, 3, 4])), shape)


def chain(base: str, suffix: str) -> tvm.IRModule:
    """A convolution or product followed by what the suffix of a pattern's name says."""
    steps = suffix.split("_") if suffix else []
    if steps[-2:] == ["gelu", "tanh"]:
        steps[-2:] = ["gelu_tanh"]
    rank = int(base[4]) if base.startswith("conv") else 0
    if rank:
        image = (9, 8, 5)[:rank]
        x, out, bias = (1, 5, *image), (1, 7, *image), (1, 7, *(1,) * rank)
    else:
        # Weights of some pages, so that a second copy of them would show in a library's size.
        x, out, bias = (2, 6, 64), (2, 6, 97), (97,)

    def body(emit: Emit, *inputs: relax.Expr) -> relax.Expr:
        if base.endswith("transpose"):
            weights = constant(5, 7, *(4,) * rank, scale=0.2)
            y = getattr(op.nn, base)(inputs[0], weights, strides=(2,) * rank, padding=(1,) * rank)
        elif rank:
            weights = constant(7, 5, *(3,) * rank, scale=0.2)
            y = getattr(op.nn, base)(inputs[0], weights, padding=(1,) * rank)
        elif base.endswith("stepped_matmul"):
            # Unsigned weights: some columns reach beyond 8 bits behind their zero points.
            most = 256 if base.startswith("shifted") else 200
            weights = RANDOM.integers(0, most, (64, 97)) - 100
            y = stepped_matmul(inputs[0], weights, RANDOM.uniform(0.001, 0.002, 97))
        else:
            y = op.matmul(inputs[0], constant(64, 97, scale=0.125))
        for step in steps:
            y = emit(y)
            if step == "bias":
                y = op.add(y, constant(*bias))
            elif step == "add":
                y = op.add(y, inputs[1])
            else:
                y = ACTIVATIONS[step](emit, y)
        return y

    return graph([x, out] if "add" in steps else [x], body)


def rounded(emit: Emit, x: relax.Expr) -> relax.Expr:
    step, zero = number(0.0123), relax.const(np.uint8(101))
    there = emit(op.quantize(x, step, zero, axis=1, out_dtype="uint8"))
    return op.dequantize(there, step, zero, axis=1)


PICTURE = (2, 6, 9, 8)
LINE = (2, 6, 12)
VOLUME = (2, 6, 4, 9, 8)

CONVOLUTIONS = [f"conv{rank}d{suffix}" for suffix in ("_transpose", "") for rank in (1, 2, 3)]

SIMPLE: dict[str, tuple[tuple[int, ...], Step]] = {
    "reshape": (PICTURE, lambda emit, x: op.reshape(x, (2, 54, 8))),
    "squeeze": ((3, 1, 5), lambda emit, x: op.squeeze(x, [1])),
    "expand_dims": ((3, 5), lambda emit, x: op.expand_dims(x, [1])),
    "flatten": (PICTURE, lambda emit, x: op.flatten(x)),
    "batch_flatten": (PICTURE, lambda emit, x: op.nn.batch_flatten(x)),
    "permute_dims": (PICTURE, lambda emit, x: op.permute_dims(x, [0, 2, 3, 1])),
    "concat": (PICTURE, lambda emit, x: op.concat([x, constant(2, 3, 9, 8)], axis=1)),
    "split": (PICTURE, lambda emit, x: op.split(x, [1, 4], axis=1)),
    "strided_slice": (PICTURE, lambda emit, x: op.strided_slice(x, [1, 3], [2, -5], [6, 8])),
    "softplus": (PICTURE, lambda emit, x: op.nn.softplus(x, beta=1.5)),
    "pad": (PICTURE, lambda emit, x: op.nn.pad(x, (0, 0, 1, 0, 2, 1, 0, 3))),
    "power": (PICTURE, lambda emit, x: op.power(x, number(1.7))),
    "multiply_add": (
        PICTURE,
        lambda emit, x: op.add(emit(op.multiply(x, constant(1, 6, 1, 1))), constant(1, 6, 1, 1)),
    ),
    "multiply_add_relu": (
        PICTURE,
        lambda emit, x: op.nn.relu(
            emit(op.add(emit(op.multiply(x, constant(1, 6, 1, 1))), constant(1, 6, 1, 1)))
        ),
    ),
    "silu_chain": (PICTURE, lambda emit, x: op.multiply(x, emit(op.sigmoid(x)))),
    "max_pool2d": (PICTURE, lambda emit, x: op.nn.max_pool2d(x, (3, 2), (2, 2), (1, 0, 1, 1))),
    "avg_pool2d": (
        PICTURE,
        lambda emit, x: op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1), ceil_mode=True),
    ),
    "adaptive_avg_pool2d": (PICTURE, lambda emit, x: op.nn.adaptive_avg_pool2d(x, (3, 4))),
    "max_pool1d": (LINE, lambda emit, x: op.nn.max_pool1d(x, 3, 2, (1, 0))),
    "avg_pool1d": (LINE, lambda emit, x: op.nn.avg_pool1d(x, 4, 4)),
    "adaptive_avg_pool1d": (LINE, lambda emit, x: op.nn.adaptive_avg_pool1d(x, 3)),
    "max_pool3d": (
        VOLUME,
        lambda emit, x: op.nn.max_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0, 0, 1, 1)),
    ),
    "avg_pool3d": (
        VOLUME,
        lambda emit, x: op.nn.avg_pool3d(x, (2, 3, 3), (2, 2, 2), (0, 1, 0, 0, 0, 1)),
    ),
    "adaptive_avg_pool3d": (VOLUME, lambda emit, x: op.nn.adaptive_avg_pool3d(x, (2, 3, 1))),
    "prelu": (PICTURE, lambda emit, x: op.nn.prelu(x, constant(PICTURE[1]), axis=1)),
    "mean": (PICTURE, lambda emit, x: op.mean(x, [2, 3], keepdims=True)),
    "sum": (PICTURE, lambda emit, x: op.sum(x, [1])),
    "max": (PICTURE, lambda emit, x: op.max(x, [3], keepdims=True)),
    "min": (PICTURE, lambda emit, x: op.min(x, [0, 2])),
    "softmax": (PICTURE, lambda emit, x: op.nn.softmax(x, axis=1)),
    "resize2d": (PICTURE, lambda emit, x: op.image.resize2d(x, (20, 13))),
    "log_softmax": (PICTURE, lambda emit, x: op.nn.log_softmax(x, axis=-1)),
    "layer_norm": (
        PICTURE,
        lambda emit, x: op.nn.layer_norm(x, constant(9, 8), constant(9, 8), axes=[-2, -1]),
    ),
    "lrn": (PICTURE, lambda emit, x: lrn(emit, x, PICTURE)),
    "round_to_bytes": (PICTURE, rounded),
    "channel_shuffle": (PICTURE, lambda emit, x: shuffle(emit, x, PICTURE, 3)),
    **{name: (PICTURE, step) for name, step in ACTIVATIONS.items()},
    **{name: (PICTURE, lambda emit, x, f=f: f(x)) for name, f in UNARY.items()},
}


def case(pattern: str) -> PatternCase:
    """The graph for a pattern of the table."""
    name = pattern.removeprefix("onednn.")
    for base in (*CONVOLUTIONS, "matmul", "stepped_matmul", "shifted_stepped_matmul"):
        if name == base or name.startswith(f"{base}_"):
            return PatternCase(pattern, chain(base, name[len(base) + 1 :]))
    if name in BINARY:
        function = BINARY[name]
        mod = graph([PICTURE, (2, 6, 1, 1)], lambda emit, a, b: function(a, b))
        return PatternCase(pattern, mod, low=0.5)
    if name in POSITIVE:
        unary = POSITIVE[name]
        return PatternCase(pattern, graph([PICTURE], lambda emit, x: unary(x)), low=0.1)
    if name.startswith("recurrent"):
        one = Recurrence("lstm", "bidirectional", 5, 3, 37, "float32", False)
        return PatternCase(pattern, layer(one, 11, bias=name.endswith("bias")), -1.0, 1.0)
    shape, step = SIMPLE[name]
    low = 0.1 if name == "power" else -2.0
    return PatternCase(pattern, graph([shape], step), low=low)
