"""Values rounded as they come to 256 steps over their own range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op

Emit = Callable[[relax.Expr], relax.Expr]


def in_steps(emit: Emit, x: relax.Expr) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Values as whole numbers from 0 to 255 over their own range, its step, and where zero is.

    Parameters
    ----------
    emit : callable
        Binds an expression to a variable.
    x : relax.Expr
        float32.
    """
    zero, most, one = (relax.const(np.float32(value)) for value in (0.0, 255.0, 1.0))
    low = emit(op.minimum(emit(op.min(x)), zero))
    high = emit(op.maximum(emit(op.max(x)), zero))
    scale = emit(op.divide(emit(op.subtract(high, low)), most))
    # All zeros: any scale will do, as long as nothing is divided by nothing.
    scale = emit(op.where(emit(op.equal(scale, zero)), one, scale))
    negative = emit(op.negative(emit(op.divide(low, scale))))
    point = emit(op.round(emit(op.clip(negative, 0, 255))))
    shifted = emit(op.add(emit(op.round(emit(op.divide(x, scale)))), point))
    return emit(op.clip(shifted, 0, 255)), scale, point


def stepped(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Values rounded to those steps, as products of 8-bit integers see them.

    Parameters
    ----------
    emit : callable
        Binds an expression to a variable.
    x : relax.Expr
        float32.
    """
    values, scale, point = in_steps(emit, x)
    return emit(op.multiply(emit(op.subtract(values, point)), scale))
