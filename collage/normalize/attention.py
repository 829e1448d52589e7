"""Masks of attention: those that are known beforehand, and rows that may see nothing."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.rewrite import Rules, Scope, constant, dtype_of, is_constant, is_float

_NEVER = 1e4
"""What frameworks subtract where nothing may be attended to is at least this large."""


def _known_mask(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A bias of zeros is no bias, and one that hides what comes later is the causal mask."""
    query, key, value, bias = call.args
    attrs = call.attrs
    if not is_constant(bias) or attrs.causal_mask is not None or attrs.window_size is not None:
        return None
    array = constant(bias)
    assert array is not None
    wide = array.astype(np.float32)
    if not wide.any():
        return relax.op.nn.attention(query, key, value, scale=attrs.scale)
    rows, columns = wide.shape[-2:]
    if rows != columns or rows != static_shape(query)[1] or columns != static_shape(key)[1]:
        return None
    later = np.triu(np.ones((rows, columns), dtype=bool), 1)
    if (wide[..., ~later] == 0).all() and (wide[..., later] <= -_NEVER).all():
        return relax.op.nn.attention(query, key, value, scale=attrs.scale, causal_mask="TopLeft")
    return None


def _bias_of_same_type(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """The bias has the element type of the query."""
    query, key, value, bias = call.args
    if dtype_of(bias) == dtype_of(query):
        return None
    cast = scope.emit(relax.op.astype(bias, dtype_of(query)))
    return relax.Call(call.op, [query, key, value, cast], call.attrs, call.ty_args)


def _sees_nothing(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Rows whose maximum is minus infinity are all minus infinity: asked without a maximum.

    Where TVM reduces, a maximum begins at the least finite number, and is never below it.
    """
    for most, limit in (call.args, reversed(call.args)):
        found = scope.call(most, "max")
        array = constant(limit)
        if found is None or array is None or 0 in static_shape(found.args[0]):
            continue
        if is_float(limit) and np.isneginf(array.astype("float64")).all():
            # TVM takes what is no number for not different, too: so asked what is equal.
            lowest = relax.const(-np.inf, dtype_of(limit))
            hidden = scope.emit(relax.op.equal(found.args[0], lowest))
            hidden = scope.emit(relax.op.astype(hidden, "float32"))
            hidden = scope.emit(relax.op.min(hidden, found.attrs.axis, found.attrs.keepdims))
            return relax.op.equal(hidden, relax.const(np.ones(array.shape, "float32")))
    return None


RULES: Rules = {
    "nn.attention_bias": (_bias_of_same_type, _known_mask),
    "equal": (_sees_nothing,),
}
