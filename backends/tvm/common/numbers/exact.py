"""Legalizations that every schedule on every device needs to be right, TVM's own being not.

TVM's ``relu`` of what is no number is 0, it stops at a constant zero that is divided by, and its
sorts take bfloat16 for float16 and lack short whole numbers. It has no norms in float64 and no
signs of unsigned numbers. And what a program rounds to half
precision by a cast is rounded, though arithmetic in half precision is computed in float32
(:mod:`.wide`): blocks say so, or the bits of a float32 are cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from collage.backends.tvm.common.legalization import Legalization, default_legalization
from collage.backends.tvm.common.numbers.extremes import EXTREMES
from collage.backends.tvm.common.numbers.in_float32 import IN_FLOAT32
from collage.backends.tvm.common.numbers.norms64 import NORMS64
from collage.backends.tvm.common.numbers.remainders import REMAINDERS
from collage.backends.tvm.common.numbers.rounding import WIDE
from collage.backends.tvm.common.numbers.unsigned import UNSIGNED
from collage.backends.tvm.common.numbers.wide import ROUNDS

_INFINITY = 0x7F800000
"""The bits of a float32 that is infinite; numbers without a sign above it are none."""

_SORTED_AS = {"bfloat16": WIDE, **dict.fromkeys(["int8", "int16", "uint8", "uint16"], "int32")}
"""Types that TVM's sorts lack, and those that stand for them."""


def _relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Zero for what is below zero, and everything else as it is."""
    (x,) = call.args
    if "float" not in str(x.ty.dtype):
        return default_legalization(builder, call)

    def relu(x: te.Tensor) -> te.Tensor:
        zero = tirx.const(0, x.dtype)

        def element(*place: Any) -> Any:
            return tirx.Select(x(*place) < zero, zero, x(*place))

        return te.compute(x.shape, element, "relu")

    return builder.call_te(relu, x, primfunc_name_hint="relu")


def _divide(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """By a constant zero, at which TVM stops: infinity times the number, which is the same."""
    x, by = call.args
    zero = isinstance(by, GenericConst) and by.value.numpy().ndim == 0 and not by.value.numpy()
    if not zero or "float" not in str(x.ty.dtype):
        return default_legalization(builder, call)
    infinity = relax.const(np.copysign(np.inf, float(by.value.numpy())), str(x.ty.dtype))
    return default_legalization(builder, builder.normalize(relax.op.multiply(x, infinity)))


def _cast(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A cast to half precision rounds, whoever reads it."""
    (x,) = call.args
    dtype = str(call.ty.dtype)
    if dtype not in ("float16", "bfloat16") or str(x.ty.dtype) in ("bool", dtype):
        return default_legalization(builder, call)

    def rounded(value: Any) -> Any:
        # TVM cannot keep a bfloat16 inside of a kernel, but the float32 that is one.
        return (value if dtype == "float16" else cut(value.astype(WIDE))).astype(dtype)

    def cast(x: te.Tensor) -> te.Tensor:
        attrs = {ROUNDS: 1} if dtype == "float16" else {}
        return te.compute(x.shape, lambda *place: rounded(x(*place)), "rounded", attrs=attrs)

    return builder.call_te(cast, x, primfunc_name_hint="cast")


def cut(value: Any) -> Any:
    """A float32 with no more digits than a bfloat16 has: the nearest, of two the even one.

    Parameters
    ----------
    value : tirx.PrimExpr
        A float32.

    Returns
    -------
    tirx.PrimExpr
        A float32, made of the value's bits.
    """

    def constant(bits: int) -> Any:
        return tirx.const(bits, "uint32")

    bits = tirx.reinterpret("uint32", value)
    odd = (bits >> constant(16)) & constant(1)
    nearest = (bits + odd + constant(0x7FFF)) & constant(0xFFFF0000)
    # As TVM's simplifier writes it.
    is_none = constant(_INFINITY) < (bits & constant(0x7FFFFFFF))
    return tirx.Select(is_none, value, tirx.reinterpret(WIDE, nearest))


def what_is_cut(expr: tirx.Select) -> Any:
    """What :func:`cut` was given where this is what it made, for devices that have a way of theirs.

    Parameters
    ----------
    expr : tirx.Select
        Any.

    Returns
    -------
    tirx.PrimExpr or None
        The value; none of anything else.
    """
    condition, value = expr.condition, expr.true_value
    bound = condition.a if isinstance(condition, tirx.LT) else None
    if not isinstance(bound, tirx.IntImm) or int(bound) != _INFINITY:
        return None
    return value if tvm_ffi.structural_equal(expr, cut(value)) else None


def _in_order(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's own, of a wider type where it has none of these numbers: which keeps their order."""
    (x,) = call.args
    wider = _SORTED_AS.get(str(x.ty.dtype))
    if wider is None:
        return _if_any(builder, call)
    wide = _legal(builder, relax.op.astype(x, wider))
    found = _legal(builder, relax.Call(call.op, [wide], call.attrs))

    def narrow(part: relax.Expr, wanted: Any) -> relax.Expr:
        if str(part.ty.dtype) == str(wanted.dtype):
            return part
        return _legal(builder, relax.op.astype(part, str(wanted.dtype)))

    if not isinstance(call.ty, relax.TupleType):
        return narrow(found, call.ty)
    parts = [builder.emit(relax.TupleGetItem(found, i)) for i in range(len(call.ty.fields))]
    return relax.Tuple([narrow(p, wanted) for p, wanted in zip(parts, call.ty.fields, strict=True)])


def _legal(builder: relax.BlockBuilder, call: relax.Call) -> relax.Var:
    return builder.emit(_if_any(builder, builder.normalize(call)))


def _if_any(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's legalization; sorts have none, a later pass finds kernels for them."""
    return default_legalization(builder, call) if call.op.get_attr("FLegalize") else call


EXACT: Mapping[str, Legalization] = {
    **IN_FLOAT32,
    **EXTREMES,
    **NORMS64,
    **UNSIGNED,
    **REMAINDERS,
    "relax.nn.relu": _relu,
    "relax.divide": _divide,
    "relax.astype": _cast,
    **dict.fromkeys(["relax.sort", "relax.argsort", "relax.topk", "relax.median"], _in_order),
}
"""By operator name."""
