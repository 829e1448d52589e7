"""One spelling for each piece of elementwise arithmetic.

Constants stand second, scalars are 0-d, per-channel constants are ``(1, C, 1, 1)`` and per-feature
ones ``(N,)``; division and subtraction of constants become multiplication and addition. Backends'
patterns then need one form each.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import Rules, Scope

_CONVOLUTIONS = tuple(f"nn.conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose"))
_BINARY = {
    "add": relax.op.add,
    "subtract": relax.op.subtract,
    "multiply": relax.op.multiply,
    "divide": relax.op.divide,
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
    "power": relax.op.power,
}


def _constant_second(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``c + x`` is ``x + c``."""
    a, b = call.args
    if rw.is_constant(a) and not rw.is_constant(b):
        return _BINARY[rw.op_name(call)](b, a)
    return None


def _canonical_constant(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Give the constant operand its one shape (see the module's text)."""
    pair = rw.operand_pair(call)
    if pair is None or not rw.is_tensor(call) or static_shape(call) != static_shape(pair[0]):
        return None
    x, const = pair
    wanted = _constant_shape(scope, x, static_shape(const))
    if wanted == static_shape(const):
        return None
    value = scope.digits.value(const)
    assert value is not None
    made = scope.digits.constant(value.reshape(wanted), rw.dtype_of(const))
    return _BINARY[rw.op_name(call)](x, made)


def _constant_shape(scope: Scope, x: relax.Expr, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The canonical shape of a constant of this shape that is combined with ``x``."""
    rank = len(static_shape(x))
    full = (1,) * (rank - len(shape)) + shape
    wide = [axis for axis, size in enumerate(full) if size != 1]
    channels = (1, static_shape(x)[1]) + (1,) * (rank - 2) if rank > 2 else ()
    if scope.comes_from(x, *_CONVOLUTIONS) and full == channels:
        return channels
    if not wide:
        # A bias of one feature is still a bias.
        one_feature = scope.comes_from(x, "matmul") and static_shape(x)[-1:] == (1,) and shape != ()
        return (1,) if one_feature else ()
    if rank > 2 and wide == [1]:
        return full
    return full[wide[0] :]


_RANGES = ("max", "maximum", "subtract", "abs")


def _is_step(scope: Scope, call: relax.Call) -> bool:
    """Whether it may be the step of what is rounded over its own range, the largest by 127.5.

    The largest lies by a tie then: a step that is off by its last digit rounds it the other way.
    """
    shape = static_shape(call)
    narrow = shape is not None and shape[-1:] in ((), (1,))
    return narrow and any(scope.comes_from(call.args[0], name) for name in _RANGES)


def _divide_to_multiply(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``x / c`` is ``x * (1 / c)`` for a finite, non-zero constant."""
    pair = rw.operand_pair(call)
    if pair is None or not rw.is_float(call) or _is_step(scope, call):
        return None
    value, dtype = scope.digits.value(pair[1]), rw.dtype_of(call)
    assert value is not None
    with np.errstate(all="ignore"):
        inverse = 1 / value.astype("float64")
        kept = inverse.astype(dtype)
    if not np.all(np.isfinite(kept)) or np.any(kept == 0):
        return None
    return relax.op.multiply(pair[0], scope.digits.constant(inverse, dtype))


def _subtract_to_add(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``x - c`` is ``x + (-c)``."""
    pair = rw.operand_pair(call)
    if pair is None or not rw.is_float(call):
        return None
    value = scope.digits.value(pair[1])
    assert value is not None
    return relax.op.add(pair[0], scope.digits.constant(-value, rw.dtype_of(call)))


def _simple_power(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Squares and square roots have operators of their own."""
    exponent = rw.scalar(call.args[1])
    x = call.args[0]
    if exponent is None or not rw.is_tensor(call) or static_shape(x) != static_shape(call):
        return None
    if exponent == 2.0:
        return relax.op.multiply(x, x)
    return relax.op.sqrt(x) if exponent == 0.5 and rw.is_float(x) else None


def _square_to_multiply(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``square(x)`` is ``x * x``."""
    return relax.op.multiply(call.args[0], call.args[0])


def _times_zero(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``x * 0`` is no number where ``x`` is infinite or none; a compiler takes it for 0."""
    x, factor = call.args
    if rw.scalar(factor) != 0.0 or not rw.is_float(call) or static_shape(x) != static_shape(call):
        return None
    dtype = rw.dtype_of(call)
    zero, none = (rw.make_constant(value, dtype) for value in (0.0, math.nan))
    return relax.op.where(scope.emit(relax.op.isfinite(x)), zero, none)


def _merge_constants(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``(x * a) * b`` is ``x * (a * b)``, and the same for sums; ``(x + a) * b`` stays.

    A bias keeps its shape: nothing is merged into it that would widen it.
    """
    name = rw.op_name(call)
    pair = rw.operand_pair(call)
    inner = scope.call(pair[0], name) if pair is not None else None
    if pair is None or inner is None or not rw.is_float(call) or not scope.only_use(pair[0]):
        return None
    first, second = (scope.digits.value(arg) for arg in (inner.args[1], pair[1]))
    if first is None or second is None or static_shape(inner.args[0]) != static_shape(call):
        return None
    shape = np.broadcast_shapes(first.shape, second.shape)
    widened = shape != first.shape
    if widened and scope.comes_from(inner.args[0], "matmul", *_CONVOLUTIONS):
        return None
    if widened and shape != second.shape:
        return None
    merged = {"add": np.add, "multiply": np.multiply}[name]
    value = merged(first, second, dtype="float64")
    return _BINARY[name](inner.args[0], scope.digits.constant(value, rw.dtype_of(call)))


RULES: Rules = {
    "add": (_constant_second, _canonical_constant, _merge_constants),
    "multiply": (_constant_second, _canonical_constant, _merge_constants, _times_zero),
    "maximum": (_constant_second, _canonical_constant),
    "minimum": (_constant_second, _canonical_constant),
    "subtract": (_subtract_to_add, _canonical_constant),
    "divide": (_divide_to_multiply, _canonical_constant),
    "power": (_simple_power, _canonical_constant),
    "square": (_square_to_multiply,),
}
