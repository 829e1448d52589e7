"""Remainders of floats as they are: what a rounded quotient leaves is none of theirs.

TVM takes the product of the divisor and the rounded-down quotient away, each of them rounded: of
1e6 divided by 0.7 no digit is right.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax, te, tirx

from collage.backends.tvm.common.legalization import (
    Legalization,
    broadcast_index,
    default_legalization,
)


def _floor_mod(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """With the divisor's sign, by the remainder that has the dividend's."""
    if "float" not in str(call.args[0].ty.dtype):
        return default_legalization(builder, call)
    shape = list(call.ty.shape)

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        def places(t: te.Tensor, place: tuple[tirx.Var, ...]) -> tirx.PrimExpr:
            return t(*broadcast_index(place, t.shape))

        rest = te.compute(shape, lambda *i: tirx.fmod(places(a, i), places(b, i)), "remainder")

        def turned(*place: tirx.Var) -> tirx.PrimExpr:
            value, by = rest(*place), places(b, place)
            zero = tirx.const(0, rest.dtype)
            other = tirx.any(tirx.all(value < zero, by > zero), tirx.all(value > zero, by < zero))
            return tirx.Select(other, value + by, value)

        return te.compute(shape, turned, "floor_mod")

    return builder.call_te(compute, *call.args, primfunc_name_hint="floor_mod")


def _mod(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """With the dividend's sign."""
    if "float" not in str(call.args[0].ty.dtype):
        return default_legalization(builder, call)

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        def rest(*place: tirx.Var) -> tirx.PrimExpr:
            return tirx.fmod(*(t(*broadcast_index(place, t.shape)) for t in (a, b)))

        return te.compute(list(call.ty.shape), rest, "mod")

    return builder.call_te(compute, *call.args, primfunc_name_hint="mod")


REMAINDERS: Mapping[str, Legalization] = {"relax.floor_mod": _floor_mod, "relax.mod": _mod}
"""By operator name."""
