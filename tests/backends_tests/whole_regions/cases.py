"""One graph for every operator that libraries of whole regions have a pattern for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.stepped import Steps, stepped_matmul
from collage.testing.backend_cases import PatternCase
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.recurrent_layers import layer

PICTURE = (2, 4, 9, 11)
SIDES = {1: (9,), 2: (9, 8), 3: (5, 6, 7)}

NOT_ALONE = ("isnan", "isinf", "isfinite", "batch_norm")
"""What the first find is not among a case's inputs, and Relax's own pass joins no part of a tuple.
They have tests of their own."""


def case(
    name: str,
    shapes: Sequence[tuple[int, ...]],
    body: Callable[..., relax.Expr],
    low: float = -2.0,
    high: float = 2.0,
    dtype: str = "float32",
) -> PatternCase:
    """One operator on inputs of these shapes."""
    mod = graph(shapes, lambda emit, *x: body(*x), dtype)
    return PatternCase(name, mod, low, high)


def cases(backend: str) -> list[PatternCase]:
    """All of them, as a backend's patterns are called."""
    found = [
        *_elementwise(), *_logic(), *_movement(), *_gathering(), *_reductions(), *_norms(),
        *_pictures(), *_products(), *_recurrent(), *_in_steps(),
    ]  # fmt: skip
    return [replace(one, pattern=f"{backend}.{one.pattern}") for one in found]


def _elementwise() -> Iterator[PatternCase]:
    shape = (3, 37)
    for name in (
        *("exp", "abs", "negative", "sin", "cos", "sinh", "cosh", "atan", "asinh", "ceil", "floor"),
        *("erf", "sign", "sigmoid", "tanh", "round", "trunc", "square"),
    ):
        yield case(name, [shape], getattr(op, name))
    for name in ("log", "sqrt", "rsqrt"):
        yield case(name, [shape], getattr(op, name), 0.1, 4.0)
    for name in ("asin", "acos", "atanh", "tan"):
        yield case(name, [shape], getattr(op, name), -0.9, 0.9)
    yield case("acosh", [shape], op.acosh, 1.1, 5.0)
    for name in ("relu", "silu", "gelu", "gelu_tanh", "selu", "softplus"):
        yield case(name, [shape], getattr(op.nn, name))
    yield case("leakyrelu", [shape], lambda x: op.nn.leakyrelu(x, 0.2))
    yield case("prelu", [PICTURE], lambda x: op.nn.prelu(x, constant(4), 1))
    for name in ("add", "subtract", "multiply", "maximum", "minimum"):
        yield case(name, [(2, 3, 5), (3, 1)], getattr(op, name))
    for name in ("divide", "power", "mod", "floor_mod"):
        yield case(name, [(2, 3, 5), (5,)], getattr(op, name), 0.5, 3.0)
    yield case("clip", [shape], lambda x: op.clip(x, -0.5, 0.75))
    yield case("astype", [shape], lambda x: op.astype(x, "float16"))


def _logic() -> Iterator[PatternCase]:
    for name in ("greater", "greater_equal", "less", "less_equal"):
        yield case(name, [(2, 3, 37), (37,)], getattr(op, name), -2.0, 3.0)
    # Random floats are never equal.
    for name in ("equal", "not_equal"):
        yield case(name, [(2, 3, 37), (37,)], getattr(op, name), dtype="bool")
    chosen = relax.const(np.arange(37) % 3 > 0)
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield case(name, [(3, 37)], lambda x, n=name: getattr(op, n)(x, chosen), dtype="bool")
    yield case("logical_not", [(3, 37)], op.logical_not, dtype="bool")
    yield case("where", [(3, 37), (37,)], lambda a, b: op.where(chosen, a, b))


def _movement() -> Iterator[PatternCase]:
    yield case("reshape", [PICTURE], lambda x: op.reshape(x, (8, 99)))
    yield case("flatten", [PICTURE], op.flatten)
    yield case("batch_flatten", [PICTURE], op.nn.batch_flatten)
    yield case("squeeze", [(2, 1, 3, 1)], lambda x: op.squeeze(x, [1]))
    yield case("expand_dims", [(2, 3)], lambda x: op.expand_dims(x, [0, 2]))
    yield case("permute_dims", [PICTURE], lambda x: op.permute_dims(x, [0, 2, 3, 1]))
    yield case(
        "layout_transform",
        [PICTURE],
        lambda x: op.layout_transform(x, lambda n, c, h, w: (n, h, w, c)),
    )
    yield case("concat", [(2, 3), (2, 4)], lambda a, b: op.concat([a, b], 1))
    yield case("stack", [(2, 3), (2, 3)], lambda a, b: op.stack([a, b], 1))
    yield case("split", [(2, 9)], lambda x: op.split(x, [1, 4], -1))
    yield case(
        "strided_slice", [(9, 7)], lambda x: op.strided_slice(x, [0, 1], [8, 1], [-9, 7], [-3, 2])
    )
    yield case("pad", [PICTURE], lambda x: op.nn.pad(x, (0, 0, 0, 0, 1, 2, 3, 1), "reflect"))
    yield case("broadcast_to", [(2, 1)], lambda x: op.broadcast_to(x, (4, 2, 3)))
    yield case("tile", [(2, 3)], lambda x: op.tile(x, (2, 3, 1)))
    yield case("flip", [(2, 3)], lambda x: op.flip(x, 1))
    for name in ("tril", "triu"):
        yield case(name, [(2, 5, 7)], lambda x, n=name: getattr(op, n)(x, -1))


def _gathering() -> Iterator[PatternCase]:
    indices = relax.const(np.array([[6, 0, 3], [2, 2, 5]]), "int64")
    yield case("take", [(2, 7, 3)], lambda x: op.take(x, indices, 1))
    rows = relax.const(np.array([[2, 0, 1], [0, 2, 2]]), "int64")
    yield case("gather_elements", [(3, 3)], lambda x: op.gather_elements(x, rows, 0))
    pairs = relax.const(np.array([[0, 2], [1, 0], [1, 2]]), "int64")
    yield case("gather_nd", [(2, 3, 5)], lambda x: op.gather_nd(x, pairs))


def _reductions() -> Iterator[PatternCase]:
    for name in ("sum", "mean", "max", "min", "prod", "variance", "std"):
        yield case(name, [PICTURE], lambda x, n=name: getattr(op, n)(x, [2, 3], True))
    for name in ("argmax", "argmin"):
        yield case(name, [PICTURE], lambda x, n=name: getattr(op, n)(x, 1))
    yield case("cumsum", [PICTURE], lambda x: op.cumsum(x, 2))
    for name in ("softmax", "log_softmax"):
        yield case(name, [PICTURE], lambda x, n=name: getattr(op.nn, n)(x, 1))


def _norms() -> Iterator[PatternCase]:
    both = [constant(9, 11), constant(9, 11)]
    yield case("layer_norm", [PICTURE], lambda x: op.nn.layer_norm(x, *both, [-2, -1]))
    yield case("rms_norm", [PICTURE], lambda x: op.nn.rms_norm(x, constant(11), [-1]))
    four = [constant(4), constant(4)]
    yield case("group_norm", [PICTURE], lambda x: op.nn.group_norm(x, *four, 2, 1, [2, 3]))
    yield case("instance_norm", [PICTURE], lambda x: op.nn.instance_norm(x, *four, 1, [2, 3]))


def _pictures() -> Iterator[PatternCase]:
    for rank, sides in SIDES.items():
        shape = (2, 4, *sides)
        for kind in ("max", "avg"):
            pool = getattr(op.nn, f"{kind}_pool{rank}d")
            window = {"pool_size": (3,) * rank, "strides": (2,) * rank, "padding": (1,) * rank * 2}
            yield case(f"{kind}_pool{rank}d", [shape], lambda x, f=pool, w=window: f(x, **w))
        pool = getattr(op.nn, f"adaptive_avg_pool{rank}d")
        yield case(f"adaptive_avg_pool{rank}d", [shape], lambda x, f=pool, r=rank: f(x, (3,) * r))
    yield case("pixel_shuffle", [(1, 8, 3, 5)], lambda x: op.nn.pixel_shuffle(x, 2))
    yield case("resize2d", [PICTURE], lambda x: op.image.resize2d(x, (20, 13)))


def _products() -> Iterator[PatternCase]:
    for rank, sides in SIDES.items():
        convolution = getattr(op.nn, f"conv{rank}d")
        weights = constant(6, 2, *(3,) * rank, scale=0.2)
        yield case(
            f"conv{rank}d",
            [(1, 4, *sides)],
            lambda x, f=convolution, w=weights: f(x, w, strides=2, padding=1, groups=2),
        )
        transposed = getattr(op.nn, f"conv{rank}d_transpose")
        back = constant(4, 3, *(4,) * rank, scale=0.2)
        yield case(
            f"conv{rank}d_transpose",
            [(1, 4, *sides)],
            lambda x, f=transposed, w=back: f(x, w, strides=2, padding=1, groups=2),
        )
    yield case("matmul", [(2, 6, 64)], lambda x: op.matmul(x, constant(64, 97, scale=0.125)))
    heads = [(2, 6, 4, 8), (2, 7, 4, 8), (2, 7, 4, 8)]
    yield case(
        "attention", heads, lambda q, k, v: op.nn.attention(q, k, v, causal_mask="BottomRight")
    )
    yield case("attention_bias", [*heads, (2, 4, 6, 7)], op.nn.attention_bias)


def _recurrent() -> Iterator[PatternCase]:
    one = Recurrence("gru", "bidirectional", 5, 3, 37, "float32", False)
    for name in ("", "_bias"):
        yield PatternCase(f"recurrent{name}", layer(one, 11, bias=bool(name)), -1.0, 1.0)


def _in_steps() -> Iterator[PatternCase]:
    def rounded(emit: Emit, x: relax.Expr) -> relax.Expr:
        step, zero = relax.const(np.float32(0.03)), relax.const(np.int8(-9))
        there = emit(op.quantize(x, step, zero, axis=1, out_dtype="int8"))
        return op.dequantize(there, step, zero, axis=1)

    yield PatternCase("round_to_bytes", graph([PICTURE], rounded))
    whole = np.random.default_rng().integers(-63, 64, (37, 5))
    scales = np.linspace(0.01, 0.02, 5, dtype=np.float32)
    yield case(
        "product_in_steps",
        [(2, 3, 37)],
        lambda x: stepped_matmul(x, whole, scales, Steps(0.016, 120)),
    )
