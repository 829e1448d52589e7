"""Conversions from and to bfloat16, spelled out for processors without the type.

TVM 0.27 writes a value twice where it rounds it, names that are bound in it included, and takes the
bits of a bfloat16 for a number wherever it is cast inside of a bound value. What is bits from the
start it leaves alone. Buffers inside a kernel it makes float32, so those are left to it.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.ir.expr import TensorLoad

from collage.backends.tvm.cpu.wide_math import let

_NARROW, _WIDE = "bfloat16", "float32"


def spell_bfloat16(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Casts between bfloat16 and float32 as shifts of their bits, rounding to nearest even."""

    given = _given(func)

    def convert(cast: tirx.Cast) -> Any:
        types = str(cast.value.ty), str(cast.ty)
        if types == (_NARROW, _WIDE):
            return _widened(cast.value, given)
        if types == (_WIDE, _NARROW):
            whole = tirx.reinterpret("uint32", cast.value)
            return tirx.reinterpret(_NARROW, let(whole, _upper_half))
        return cast

    return func.with_body(tvm_ffi.structural_map(func.body, [(tirx.Cast, convert)]))


def _given(func: tirx.PrimFunc) -> set[Any]:
    """The parameters of a kernel, and what it declares in their memory: it lies in bits there."""
    given = set(func.params)

    def declared(stmt: tirx.DeclBuffer) -> None:
        data = stmt.data
        if isinstance(data, Call) and data.op.same_as(Op.get("tirx.buffer_data")):
            given.update([stmt.buffer] if data.args[0] in given else [])

    tvm_ffi.structural_walk(func.body, [(tirx.DeclBuffer, declared)])
    return given


def _widened(expr: Any, given: set[Any]) -> Any:
    """A value as float32, from the bits of what is loaded from a parameter."""
    if isinstance(expr, TensorLoad) and expr.source in given:
        bits = tirx.reinterpret("uint16", expr).astype("uint32")
        return tirx.reinterpret(_WIDE, bits << _bits(16))
    if isinstance(expr, tirx.FloatImm):
        return tirx.const(float(expr.value), _WIDE)
    if isinstance(expr, tirx.Max | tirx.Min):
        return type(expr)(_widened(expr.a, given), _widened(expr.b, given))
    if isinstance(expr, tirx.Select):
        values = _widened(expr.true_value, given), _widened(expr.false_value, given)
        return tirx.Select(expr.condition, *values)
    if isinstance(expr, Call) and expr.op.same_as(Op.get("prim.if_then_else")):
        condition, *values = expr.args
        return tirx.if_then_else(condition, *(_widened(value, given) for value in values))
    return tirx.Cast(_WIDE, expr)


def _upper_half(bits: Any) -> Any:
    odd = (bits >> _bits(16)) & _bits(1)
    return ((bits + odd + _bits(0x7FFF)) >> _bits(16)).astype("uint16")


def _bits(value: int) -> Any:
    return tirx.const(value, "uint32")
