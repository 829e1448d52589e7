"""Comparisons of what is no number, which has to stay one: TVM's drop it.

LLVM's code for ``max`` and ``min`` gives the second operand where the two do not compare, so what
may be no number comes second; and its ``!=`` is false then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from collage.backends.tvm.common.legalization import (
    Legalization,
    broadcast_index,
    default_legalization,
)
from collage.backends.tvm.common.numbers.rounding import WIDE


def _is_float(expr: relax.Expr) -> bool:
    return str(expr.ty.dtype) in ("float32", "float64", "float16", "bfloat16")


def _is_none(value: Any) -> Any:
    # TVM knows no such question to a bfloat16.
    return tirx.isnan(value.astype(WIDE) if str(value.ty) == "bfloat16" else value)


def _clip(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    x = call.args[0]
    if not _is_float(x):
        return default_legalization(builder, call)
    low, high = (tirx.const(float(bound.value), x.ty.dtype) for bound in call.args[1:])

    def clip(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.max(low, tirx.min(high, x(*i))), "clip")

    return builder.call_te(clip, x, primfunc_name_hint="clip")


def _number(expr: relax.Expr) -> float | None:
    """Of a constant scalar that is a number."""
    if not isinstance(expr, GenericConst) or expr.value.numpy().ndim > 0:
        return None
    value = float(expr.value.numpy())
    return None if np.isnan(value) else value


def _extreme(name: str, combine: Callable[[Any, Any], Any]) -> Legalization:
    def element(a: Any, b: Any) -> Any:
        return tirx.Select(_is_none(a), a, combine(a, b))

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        a, b = call.args
        if not _is_float(a):
            return default_legalization(builder, call)
        for x, other in ((a, b), (b, a)):
            value = _number(other)
            if value is not None:
                limit = tirx.const(value, x.ty.dtype)
                return builder.call_te(
                    lambda t, limit=limit: te.compute(
                        t.shape, lambda *i: combine(limit, t(*i)), name
                    ),
                    x,
                    primfunc_name_hint=name,
                )
        return _of_two(builder, call, name, element)

    return legalize


def _of_two(
    builder: relax.BlockBuilder, call: relax.Call, name: str, element: Callable[[Any, Any], Any]
) -> relax.Expr:
    shape = call.ty.shape

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        def at(*place: Any) -> Any:
            return element(*(t(*broadcast_index(place, t.shape)) for t in (a, b)))

        return te.compute(list(shape), at, name)

    return builder.call_te(compute, *call.args, primfunc_name_hint=name)


def _not_equal(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if not _is_float(call.args[0]):
        return default_legalization(builder, call)

    def element(a: Any, b: Any) -> Any:
        return tirx.any(_is_none(a), _is_none(b), a != b)

    return _of_two(builder, call, "not_equal", element)


COMPARISONS: Mapping[str, Legalization] = {
    "relax.clip": _clip,
    "relax.maximum": _extreme("maximum", tirx.max),
    "relax.minimum": _extreme("minimum", tirx.min),
    "relax.not_equal": _not_equal,
}
"""By operator name; what compares whole numbers is TVM's own."""
