"""Fused attention, as ``relax.nn.attention`` defines it."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage.cost.reference.values import (
    Array,
    OperatorTable,
    UnsupportedOperator,
    Value,
    widen,
)


def _attention(call: relax.Call, args: list[Value]) -> Value:
    """softmax(scale * Q K^T + bias) V; tensors are (batch, length, heads, width)."""
    attrs = call.attrs
    if attrs.window_size is not None:
        raise UnsupportedOperator("attention within a window")
    query, key, value = (widen(arg).transpose(0, 2, 1, 3) for arg in args[:3])
    scale = float(attrs.scale) if attrs.scale is not None else query.shape[-1] ** -0.5
    scores = (query * np.float32(scale)) @ key.swapaxes(-1, -2)
    if len(args) > 3:
        scores = scores + widen(args[3])
    if attrs.causal_mask is not None:
        allowed = _causal(str(attrs.causal_mask), *scores.shape[-2:])
        scores = np.where(allowed, scores, -np.inf)
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores, out=scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.ascontiguousarray((weights @ value).transpose(0, 2, 1, 3))


def _causal(corner: str, queries: int, keys: int) -> Array:
    """What may be looked at. The diagonal starts in the top left corner, or, for ``BottomRight``,
    so many columns to the right as there are more keys than queries (or the other way round)."""
    offset = {"TopLeft": 0, "BottomRight": abs(queries - keys)}.get(corner)
    if offset is None:
        raise UnsupportedOperator(f"causal mask {corner}")
    return np.tri(queries, keys, offset, dtype=bool)


ATTENTION: OperatorTable = {
    "relax.nn.attention": _attention,
    "relax.nn.attention_bias": _attention,
}
