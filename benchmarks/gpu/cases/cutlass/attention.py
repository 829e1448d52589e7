"""Cases of the ``cutlass`` backend's attention: masks, biases, head sizes, layouts, dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases._case import CudaCase
from collage.testing.graphs import Emit, graph

RTOL = {"float16": 4e-3, "bfloat16": 1.6e-2, "float32": 1e-4}
"""Weights of the values are rounded to the element type; float32 runs as three TF32 products."""

HEADS_FIRST = [0, 2, 1, 3]


def attention(
    extents: Sequence[int],
    dtype: str,
    *,
    bias: Sequence[int] | None = None,
    dim_value: int | None = None,
    **attrs: Any,
) -> tvm.IRModule:
    """``relax.nn.attention`` of (batch, heads, queries, keys, elements of a head)."""
    batch, heads, queries, keys, dim = extents
    shapes: list[tuple[int, ...]] = [
        (batch, queries, heads, dim),
        (batch, keys, heads, dim),
        (batch, keys, heads, dim_value or dim),
    ]
    shapes += [tuple(bias)] if bias else []

    def body(emit: Emit, *operands: relax.Expr) -> relax.Expr:
        return op.nn.attention(*operands, **attrs)

    return graph(shapes, body, dtype)


def chain(
    extents: Sequence[int],
    dtype: str,
    *,
    scaling: str = "",
    factor: float = 1.0,
    mask: Sequence[int] | None = None,
    tokens_first: bool = False,
) -> tvm.IRModule:
    """``softmax(scaled(q @ k^T) + mask) @ v`` of (batch, heads, queries, keys, elements).

    ``tokens_first``: the keys come as (batch, keys, heads, elements) and are permuted at once.
    """
    batch, heads, queries, keys, dim = extents
    lead = (batch, heads) if heads else (batch,)
    source = (batch, keys, heads, dim) if tokens_first else (*lead, keys, dim)
    axes = [0, 2, 3, 1] if tokens_first else [0, 1, 3, 2] if heads else [0, 2, 1]
    shapes = [(*lead, queries, dim), source, (*lead, keys, dim)]
    shapes += [tuple(mask)] if mask else []

    def body(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, *others: relax.Expr
    ) -> relax.Expr:
        scores = emit(op.matmul(q, emit(op.permute_dims(k, axes))))
        if scaling:
            number = relax.const(np.array(factor, dtype), dtype)
            scores = emit(getattr(op, scaling)(scores, number))
        if others:
            scores = emit(op.add(scores, others[0]))
        return op.matmul(emit(op.nn.softmax(scores, axis=-1)), v)

    return graph(shapes, body, dtype)


def of_parts(
    extents: Sequence[int], dtype: str, *, bias: Sequence[int] | None = None, **attrs: Any
) -> tvm.IRModule:
    """``relax.nn.attention`` of the thirds of one (batch, tokens, 3 x heads x elements) tensor."""
    batch, heads, tokens, dim = extents
    shapes: list[Sequence[int]] = [(batch, tokens, 3 * heads * dim)]
    shapes += [tuple(bias)] if bias else []

    def body(emit: Emit, joined: relax.Expr, *others: relax.Expr) -> relax.Expr:
        parts = emit(op.split(joined, 3, axis=-1))
        whole = (batch, tokens, heads, dim)
        operands = [emit(op.reshape(emit(parts[i]), whole)) for i in range(3)]
        return op.nn.attention(*operands, *others, **attrs)

    return graph(shapes, body, dtype)


def _case(pattern: str, dtype: str, what: str, module: tvm.IRModule) -> CudaCase:
    name = f"{pattern}-{dtype}-{what}"
    return CudaCase(name, "cutlass", f"cutlass.{pattern}", module, {}, RTOL[dtype])


def cases() -> list[CudaCase]:
    """All cases; those of a line share a kernel or two."""
    half, brain, single = "float16", "bfloat16", "float32"
    return [
        _case("attention", half, "2x12x128x64", attention((2, 12, 128, 128, 64), half)),
        _case(
            "attention",
            half,
            "long",
            attention((1, 4, 640, 640, 64), half, causal_mask="TopLeft", scale=0.2),
        ),
        _case("attention", brain, "long", attention((1, 2, 520, 333, 128), brain)),
        _case("attention", half, "odd", attention((1, 3, 77, 101, 40), half, scale=0.3)),
        _case(
            "attention", half, "top", attention((2, 2, 100, 70, 64), half, causal_mask="TopLeft")
        ),
        _case(
            "attention",
            half,
            "bottom",
            attention((2, 2, 60, 197, 64), half, causal_mask="BottomRight"),
        ),
        _case("attention", half, "values", attention((1, 4, 65, 50, 32), half, dim_value=64)),
        _case("attention", half, "unaligned", attention((2, 3, 33, 47, 36), half)),
        _case("attention", half, "one-query", attention((2, 8, 1, 200, 128), half)),
        _case(
            "attention",
            brain,
            "128",
            attention((1, 4, 130, 130, 128), brain, causal_mask="TopLeft"),
        ),
        _case("attention", half, "160", attention((2, 3, 40, 72, 160), half)),
        _case("attention", single, "64", attention((2, 2, 70, 90, 64), single)),
        _case(
            "attention_bias", half, "full", attention((2, 3, 50, 64, 64), half, bias=(2, 3, 50, 64))
        ),
        _case(
            "attention_bias", half, "keys", attention((2, 3, 50, 64, 64), half, bias=(2, 1, 1, 64))
        ),
        _case(
            "attention_bias",
            half,
            "heads",
            attention((2, 3, 50, 64, 64), half, bias=(1, 3, 50, 64)),
        ),
        _case(
            "attention_bias",
            half,
            "windows",
            attention((6, 3, 49, 49, 32), half, bias=(1, 3, 49, 49)),
        ),
        _case(
            "attention_bias",
            brain,
            "odd-long",
            attention((2, 2, 197, 577, 80), brain, bias=(2, 1, 197, 577)),
        ),
        _case("attention", half, "256", attention((1, 2, 200, 300, 256), half)),
        _case("attention", half, "three-groups", attention((2, 3, 777, 900, 64), half)),
        _case("attention_chain", half, "wide", chain((1, 2, 72, 90, 160), half)),
        _case("attention_chain_mask", half, "odd", chain((2, 3, 40, 49, 64), half, mask=(40, 49))),
        _case(
            "attention_of_parts",
            half,
            "causal",
            of_parts((2, 12, 128, 64), half, causal_mask="TopLeft"),
        ),
        _case(
            "attention_bias_of_parts",
            half,
            "keys",
            of_parts((2, 3, 48, 32), half, bias=(2, 1, 1, 48)),
        ),
        _case("attention_chain", half, "2x3x50x70x64", chain((2, 3, 50, 70, 64), half)),
        _case("attention_chain", half, "3-axes", chain((5, 0, 33, 40, 32), half)),
        _case(
            "attention_chain_multiply",
            half,
            "tokens-first",
            chain((2, 4, 65, 65, 64), half, scaling="multiply", factor=0.125, tokens_first=True),
        ),
        _case(
            "attention_chain_divide",
            half,
            "8",
            chain((2, 4, 65, 30, 64), half, scaling="divide", factor=8.0),
        ),
        _case("attention_chain_mask", half, "rows", chain((2, 3, 40, 48, 64), half, mask=(40, 48))),
        _case(
            "attention_chain_multiply_mask",
            half,
            "keys",
            chain((2, 3, 40, 48, 64), half, scaling="multiply", factor=0.1, mask=(2, 1, 1, 48)),
        ),
        _case(
            "attention_chain_divide_mask",
            half,
            "full",
            chain((2, 3, 40, 48, 64), half, scaling="divide", factor=8.0, mask=(2, 3, 40, 48)),
        ),
    ]
