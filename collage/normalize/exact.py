"""Products with numbers that half precision cannot hold.

PyTorch multiplies a tensor of half precision by a Python number in float32. Rounded to the tensor's
type, the number is off by up to 1 in 2048, and with it every element in the same direction: what
roundings of elements do averages out in the sums behind, this does not, and it adds up over a
network's layers. A network without norms, whose activations are scaled, came out 1.4 times as
inexact so as eager PyTorch's roundings, all of them, make it.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference.rounding import HALF
from collage.rewrite import Rules, Scope

_LEAST = 2.0**-14
"""Relative to the number; an eighth of what rounding may do."""

_SLOPES = (1 / 6, 1.702)
"""Of a hard sigmoid and of a fast GELU, which libraries compute as one with what is around."""


def _in_float32(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``x * s`` in float32 where ``s`` was rounded to half precision."""
    dtype = rw.dtype_of(call)
    pair = rw.operand_pair(call) if dtype in HALF else None
    if pair is None or static_shape(pair[0]) != static_shape(call):
        return None
    if scope.comes_from(pair[0], "matmul"):
        return None  # Scores, which libraries scale in float32 on the way to their softmax.
    meant, kept = scope.digits.value(pair[1]), rw.constant(pair[1])
    if meant is None or kept is None or meant.size != 1:
        return None
    number, stored = float(meant.reshape(())), float(kept.astype(np.float32).reshape(()))
    known = any(abs(abs(number) - slope) < _LEAST for slope in _SLOPES)
    if known or abs(number - stored) <= _LEAST * abs(number) or not np.isfinite(stored):
        return None
    wide = scope.emit(relax.op.astype(pair[0], "float32"))
    product = scope.emit(relax.op.multiply(wide, rw.make_constant(np.asarray(number), "float32")))
    return relax.op.astype(product, dtype)


RULES: Rules = {"multiply": (_in_float32,)}
