"""Attention in parts, for devices whose libraries have products and softmax but no attention."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.rewrite import Rules, Scope, apply_rules, dtype_of, op_name

__all__ = ["expand_attention"]

_HIDDEN = -1e9
"""Added to scores that the causal mask hides; in float32 their share becomes nothing."""


def _expand(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``softmax(q @ k.T * scale + bias) @ v`` by heads, of (batch, sequence, heads, depth)."""
    query, key, value = call.args[:3]
    bias = call.args[3] if len(call.args) > 3 else None
    attrs = call.attrs
    if dtype_of(query) != "float32" or attrs.window_size is not None:
        return None
    rows, depth = static_shape(query)[1], static_shape(query)[3]
    columns = static_shape(key)[1]
    scale = 1 / math.sqrt(depth) if attrs.scale is None else float(attrs.scale.value)
    q = scope.emit(relax.op.permute_dims(query, [0, 2, 1, 3]))
    k = scope.emit(relax.op.permute_dims(key, [0, 2, 3, 1]))
    v = scope.emit(relax.op.permute_dims(value, [0, 2, 1, 3]))
    scores = scope.emit(relax.op.matmul(q, k))
    scores = scope.emit(relax.op.multiply(scores, relax.const(scale, "float32")))
    if bias is not None:
        scores = scope.emit(relax.op.add(scores, bias))
    if attrs.causal_mask is not None:
        # Aligned with the first query and key, or with the last ones.
        offset = columns - rows if str(attrs.causal_mask) == "BottomRight" else 0
        later = np.triu(np.full((rows, columns), _HIDDEN, "float32"), 1 + offset)
        scores = scope.emit(relax.op.add(scores, relax.const(later)))
    shares = scope.emit(relax.op.nn.softmax(scores, axis=-1))
    result = scope.emit(relax.op.matmul(shares, v))
    return relax.op.permute_dims(result, [0, 2, 1, 3])


_RULES: Rules = {"nn.attention": (_expand,), "nn.attention_bias": (_expand,)}


def expand_attention(mod: tvm.IRModule) -> tvm.IRModule:
    """Write float32 attention as products, softmax and permutations.

    Returns
    -------
    tvm.IRModule
        Without attention operators, except windowed ones and those of other element types; to be
        normalized again, for permutations now meet permutations. ``mod`` itself where there are
        none.

    Examples
    --------
    >>> from collage.rewrite import flat_bindings
    >>> from collage.testing import graph
    >>> mod = graph([(1, 4, 2, 8)] * 3, lambda emit, q, k, v: relax.op.nn.attention(q, k, v))
    >>> names = [op_name(value) for var, value in flat_bindings(expand_attention(mod)["main"])]
    >>> [name for name in names if name not in ("permute_dims", "")]
    ['matmul', 'multiply', 'nn.softmax', 'matmul']
    """
    values = (b.value for block in mod["main"].body.blocks for b in block.bindings)
    return apply_rules(mod, _RULES) if any(op_name(v) in _RULES for v in values) else mod
