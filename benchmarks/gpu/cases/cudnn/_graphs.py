"""Modules that cuDNN must take: convolutions, products, pools, norms and attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.relax.calls.pooling import SPATIAL
from collage.backends.relax.static_shape import static_shape
from collage.testing.graphs import Emit, constant, graph

HEADS_FIRST = [0, 2, 1, 3]
ACTIVATIONS: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "relu": op.nn.relu,
    "clip": lambda x: op.clip(x, 0, 2),
    "leakyrelu": lambda x: op.nn.leakyrelu(x, 0.2),
    "sigmoid": op.sigmoid,
    "tanh": op.tanh,
    "silu": op.nn.silu,
    "gelu": op.nn.gelu,
    "gelu_tanh": op.nn.gelu_tanh,
}
"""``clip`` to a bound that values reach."""


def convolution(
    data: Sequence[int],
    filters: Sequence[int],
    epilogue: Sequence[str],
    dtype: str,
    *,
    channels_last: bool = True,
    transposed: bool = False,
    groups: int = 1,
    **attrs: Any,
) -> tvm.IRModule:
    """A convolution of any rank or its transpose, with seeded weights, and what follows it.

    Parameters
    ----------
    data : sequence of int
        Batch, channels, spatial extents, whatever the layout.
    filters : sequence of int
        Output channels, spatial extents.
    epilogue : sequence of str
        Of ``bias``, ``add`` (a second input) and an activation, in their order.
    channels_last : bool
        The layout, of data and weights.
    transposed : bool
        Whether it is the gradient of a convolution's data.
    groups : int
        Of channels.
    **attrs
        Of the operator.
    """
    space = SPATIAL[len(data) - 2]
    layout = f"N{space}C" if channels_last else f"NC{space}"
    outer, inner = "IO" if transposed else "OI"
    given, made = data[1], filters[0]
    channels = {outer: given if transposed else made}
    channels[inner] = (made if transposed else given) // groups
    rng = np.random.default_rng([*data, *filters, groups, transposed])
    extents = dict(zip(f"NC{space}", data, strict=True))
    weights = {**channels, **dict(zip(space, filters[1:], strict=True))}
    kernel_layout = f"{outer}{space}{inner}" if channels_last else f"{outer}{inner}{space}"
    shape = [weights[axis] for axis in kernel_layout]
    # As many products as go into a value, on average.
    strides = np.broadcast_to(attrs.get("strides", 1), len(space))
    taps = math.prod(filters[1:]) * given / groups / (math.prod(strides) if transposed else 1)
    make = getattr(op.nn, f"conv{len(space)}d{'_transpose' * transposed}")
    layouts = {"data_layout": layout, "kernel_layout": kernel_layout, "out_layout": layout}

    def convolve(x: relax.Expr, kernel: relax.Expr) -> relax.Expr:
        return make(x, kernel, groups=groups, **attrs, **layouts)

    def body(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
        y = convolve(x, constant(*shape, rng=rng, scale=taps**-0.5, dtype=dtype))
        for word in epilogue:
            y = y if isinstance(y, relax.Var) else emit(y)
            if word == "bias":
                bias = [made if axis == "C" else 1 for axis in layout]
                y = op.add(y, constant(*bias, rng=rng, dtype=dtype))
            elif word == "add":
                y = op.add(y, others[0])
            else:
                y = ACTIVATIONS[word](y)
        return y

    shapes = [[extents[axis] for axis in layout]]
    if "add" in epilogue:
        x, w = (relax.Var("x", relax.TensorType(given, dtype)) for given in (shapes[0], shape))
        call = relax.BlockBuilder().normalize(convolve(x, w))
        shapes.append([*static_shape(call)])
    return graph(shapes, body, dtype)


def product(
    left: Sequence[int],
    right: Sequence[int],
    epilogue: Sequence[str],
    dtype: str,
    *,
    constant_right: bool = True,
) -> tvm.IRModule:
    """A matrix product with seeded weights, or of two inputs, and what follows it."""
    rng = np.random.default_rng([*left, *right])

    def body(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
        scale = right[-2] ** -0.5
        b = others[0] if others else constant(*right, rng=rng, scale=scale, dtype=dtype)
        y: relax.Expr = op.matmul(x, b)
        for word in epilogue:
            y = y if isinstance(y, relax.Var) else emit(y)
            if word == "bias":
                y = op.add(y, constant(right[-1], rng=rng, dtype=dtype))
            else:
                y = ACTIVATIONS[word](y)
        return y

    return graph([left] if constant_right else [left, right], body, dtype)


def pool(
    kind: str, data: Sequence[int], dtype: str, *, channels_last: bool = True, **attrs: Any
) -> tvm.IRModule:
    """A pool of data in its layout, of any rank."""
    make = getattr(op.nn, kind)
    space = SPATIAL[len(data) - 2]
    layout = f"N{space}C" if channels_last else f"NC{space}"
    return graph([data], lambda _, x: make(x, layout=layout, out_layout=layout, **attrs), dtype)


def norm(kind: str, data: Sequence[int], dtype: str, axes: Sequence[int] = (-1,)) -> tvm.IRModule:
    """A norm over the last axes, with seeded parameters."""
    rng = np.random.default_rng(list(data))
    shape = [data[axis] for axis in axes]

    def body(_: Emit, x: relax.Expr) -> relax.Expr:
        scale = constant(*shape, rng=rng, dtype=dtype)
        if kind == "rms_norm":
            return op.nn.rms_norm(x, scale, axes=list(axes), epsilon=1e-5)
        bias = constant(*shape, rng=rng, dtype=dtype)
        return op.nn.layer_norm(x, scale, bias, axes=list(axes), epsilon=1e-5)

    return graph([data], body, dtype)


def attention(
    extents: Sequence[int],
    dtype: str,
    *,
    bias: Sequence[int] | None = None,
    permuted: bool = False,
    out: bool = False,
    **attrs: Any,
) -> tvm.IRModule:
    """``relax.nn.attention`` of (batch, heads, queries, keys, elements of a head).

    ``permuted`` and ``out``: operands and result are (batch, heads, length, elements) outside.
    """
    batch, heads, queries, keys, width = extents
    lengths = (queries, keys, keys)
    shapes: list[Sequence[int]] = [
        (batch, heads, n, width) if permuted else (batch, n, heads, width) for n in lengths
    ]
    shapes += [tuple(bias)] if bias else []

    def body(emit: Emit, *given: relax.Expr) -> relax.Expr:
        operands = list(given[:3])
        if permuted:
            operands = [emit(op.permute_dims(operand, HEADS_FIRST)) for operand in operands]
        y = op.nn.attention(*operands, *given[3:], **attrs)
        return op.permute_dims(emit(y), HEADS_FIRST) if out else y

    return graph(shapes, body, dtype)


def chain(
    extents: Sequence[int],
    dtype: str,
    *,
    scaling: str = "",
    factor: float = 1.0,
    mask: Sequence[int] | None = None,
    permuted: bool = False,
    out: bool = False,
) -> tvm.IRModule:
    """``softmax(scaled(q @ k^T) + mask) @ v`` of (batch, heads, queries, keys, elements).

    ``permuted``: the operands come as (batch, length, heads, elements); ``out``: so does the
    result.
    """
    batch, heads, queries, keys, width = extents
    shapes: list[Sequence[int]] = [
        (batch, n, heads, width) if permuted else (batch, heads, n, width)
        for n in (queries, keys, keys)
    ]
    shapes += [tuple(mask)] if mask else []

    def body(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, *others: relax.Expr
    ) -> relax.Expr:
        if permuted:
            q, v = (emit(op.permute_dims(operand, HEADS_FIRST)) for operand in (q, v))
        k = emit(op.permute_dims(k, [0, 2, 3, 1] if permuted else [0, 1, 3, 2]))
        scores = emit(op.matmul(q, k))
        if scaling:
            number = relax.const(np.array(factor, dtype), dtype)
            scores = emit(getattr(op, scaling)(scores, number))
        if others:
            scores = emit(op.add(scores, others[0]))
        y = op.matmul(emit(op.nn.softmax(scores, axis=-1)), v)
        return op.permute_dims(emit(y), HEADS_FIRST) if out else y

    return graph(shapes, body, dtype)
