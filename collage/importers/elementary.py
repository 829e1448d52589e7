"""Functions of numbers that TVM has, and compiles wrong or not at all."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import op

Emit = Callable[[relax.Expr], relax.Var]


def hyperbolic(emit: Emit, x: relax.Expr, *, sine: bool) -> relax.Expr:
    """The hyperbolic sine or cosine of floats: TVM's code generator does not know its own.

    Parameters
    ----------
    emit : callable
        Binds what is computed on the way.
    x : relax.Expr
        A tensor of floats.
    sine : bool
        Which of the two.

    Returns
    -------
    relax.Expr
        Of the type of ``x``; computed in float32 at least.
    """
    kind = str(x.ty.dtype)
    wide = kind if kind == "float64" else "float32"
    x = x if kind == wide else emit(op.astype(x, wide))
    # Of half the operand, squared: the exponential of the whole one is infinite sooner.
    half = relax.const(0.5, wide)
    part = emit(op.multiply(half, x))
    both = [emit(op.exp(y)) for y in (part, emit(op.negative(part)))]
    found = emit(op.add(*(emit(op.multiply(emit(op.multiply(half, y)), y)) for y in both)))
    if sine:  # Near 0 as exact as elsewhere.
        found = emit(op.multiply(emit(op.tanh(x)), found))
    return found if kind == wide else emit(op.astype(found, kind))
