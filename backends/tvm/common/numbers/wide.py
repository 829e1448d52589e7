"""Narrow floats computed in float32: read narrow, compute wide, round once where it is stored.

A kernel in float16 or bfloat16 that TVM makes, or that came with the model, sums and multiplies in
that type: 12,544 values summed in float16 lose half of their digits, and more than 65,504 is
infinite. Here the loops stay as they are and the arithmetic inside becomes float32, as does what a
kernel keeps between its stages, sums before all. Moving values about needs no digits: it stays
narrow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Op, PrimType, Var
from tvm.ir.expr import TensorLoad, TensorRegion

from collage.backends.tvm.common.numbers.rounding import (
    WIDE,
    as_type,
    wide_buffer,
    with_buffers,
    with_rounding,
)

ROUNDS = "collage.rounds"
"""An annotation of blocks that store what the program itself rounds: it stays narrow."""

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_ORDER = (tirx.Max, tirx.Min)
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)

_FUNCTIONS = frozenset(
    f"tirx.{name}"
    for name in (
        *("exp", "exp2", "exp10", "log", "log10", "log1p", "sqrt", "rsqrt", "pow"),
        *("sigmoid", "tanh", "erf", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan"),
        *("asinh", "acosh", "atanh", "atan2", "hypot", "fmod", "fma", "ldexp", "copysign"),
        *("floor", "round", "trunc", "nearbyint", "fabs"),
        *("isnan", "isinf", "isfinite"),
    )
) | {"prim.ceil", "prim.log2"}
"""Functions of numbers; others are of bits or addresses, and keep the type that they are given."""


def is_narrow(dtype: object) -> bool:
    """Whether a scalar type is of floats with fewer digits than float32 has.

    Examples
    --------
    >>> [is_narrow(dtype) for dtype in ("float16", "bfloat16", "float8_e4m3fn", "float32", "int8")]
    [True, True, True, False, False]
    """
    kind = tvm.DataType(str(dtype))
    return "float" in str(dtype) and kind.lanes == 1 and kind.bits < 32


def compute_wide(unkept: Collection[str] = ()) -> tvm.transform.Pass:
    """The pass that does it to every kernel of a module that has no schedule yet.

    Parameters
    ----------
    unkept : collection of str
        Types of which a kernel keeps nothing between its stages, not even what it only moves.

    Returns
    -------
    tvm.transform.Pass
        Over kernels.

    Examples
    --------
    >>> compute_wide().info.name
    'ComputeWide'
    """

    def transform(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
        return widened(func, unkept)

    made: tvm.transform.Pass = tirx.transform.prim_func_pass(
        transform, opt_level=0, name="ComputeWide"
    )
    return made


def widened(func: tirx.PrimFunc, unkept: Collection[str] = ()) -> tirx.PrimFunc:
    """A kernel whose arithmetic is float32, from the loads to the stores into its parameters.

    Kernels that bind threads by themselves, as sorts do, and scheduled ones stay what they are.

    Parameters
    ----------
    func : tirx.PrimFunc
        Stages with blocks, as TVM makes them from tensor expressions.
    unkept : collection of str
        Types of which nothing is kept between stages.

    Returns
    -------
    tirx.PrimFunc
        The same where there is nothing to widen.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((4, 64), "float16", name="x")
    >>> k = te.reduce_axis((0, 64), name="k")
    >>> sums = te.create_prim_func([x, te.compute((4,), lambda i: te.sum(x[i, k], axis=k))])
    >>> "float32(x[v_i, v_k])" in str(widened(sums)).replace('T.Cast("float32", ', "float32(")
    True
    """
    if not isinstance(func.body, s_tir.SBlockRealize) or func.attrs.get("tirx.is_scheduled", False):
        return func
    own = set(func.params)
    body = _compute_in_float32(func.body, {})
    inner = set(_allocated(body))
    while True:
        rounded = set(_rounded_by_program(body))
        stores = [
            store
            for store in _stores(body)
            if is_narrow(store.buffer.dtype) and store.buffer not in rounded
        ]
        accumulated = _once(
            s.buffer
            for s in stores
            if _accumulates(s) and (_rounds(s) or str(s.buffer.dtype) in unkept)
        )
        accumulated = [buffer for buffer in accumulated if buffer in own]
        kept = _once(
            s.buffer
            for s in stores
            if _rounds(s) or _accumulates(s) or str(s.buffer.dtype) in unkept
        )
        kept = [buffer for buffer in kept if buffer not in own]
        wide = {b: wide_buffer(b) for b in (*accumulated, *kept)}
        if not set(kept) <= inner:
            return func  # Written out by hand: buffers declared in a way of its own.
        inner |= set(wide.values())
        if not wide:
            return func.with_body(body) if not body.same_as(func.body) else func
        body = _compute_in_float32(body, wide)
        if accumulated:
            body = with_rounding(body, {b: wide[b] for b in accumulated})


def _compute_in_float32(body: Any, wide: dict[Var, Var]) -> Any:
    """Arithmetic on narrow values between casts, and some buffers replaced by wide ones.

    Casts that meet vanish, so that a value is rounded only where it is stored or given away.
    """

    def arithmetic(expr: Any) -> Any:
        return _rounded(type(expr)(_up(expr.a), _up(expr.b)), expr) if _narrow(expr) else expr

    def order(expr: Any) -> Any:
        moved = not (_is_rounding(expr.a) or _is_rounding(expr.b))
        return expr if moved else arithmetic(expr)

    def comparison(expr: Any) -> Any:
        computed = _is_rounding(expr.a) or _is_rounding(expr.b)
        # TVM stores bfloat16 as whole numbers, and stops where it turns a comparison around.
        stored = _narrow(expr.a) and str(expr.a.ty) != "float16"
        return type(expr)(_up(expr.a), _up(expr.b)) if computed or stored else expr

    def choice(expr: tirx.Select) -> Any:
        if not (_is_rounding(expr.true_value) or _is_rounding(expr.false_value)):
            return expr
        values = _up(expr.true_value), _up(expr.false_value)
        return _rounded(tirx.Select(expr.condition, *values), expr)

    def call(expr: Call) -> Any:
        name = str(expr.op.name) if isinstance(expr.op, Op) else ""
        if name == "prim.if_then_else" and any(map(_is_rounding, expr.args[1:])):
            return _rounded(_call(expr, [expr.args[0], *map(_up, expr.args[1:])]), expr)
        if name not in _FUNCTIONS or not any(map(_narrow, expr.args)):
            return expr
        args = [_up(arg) if _narrow(arg) else arg for arg in expr.args]
        return _rounded(_call(expr, args), expr) if _narrow(expr) else _call(expr, args)

    def cast(expr: tirx.Cast) -> Any:
        if _narrow(expr):
            exact = isinstance(expr.value, tirx.Cast) and str(expr.value.ty) == WIDE
            if exact and str(expr.value.value.ty) == str(expr.ty):
                return expr.value.value
            # Of a count, say: all of its digits are wanted where it is computed with.
            return expr if str(expr.value.ty) == WIDE else _rounded(_up(expr.value), expr)
        return as_type(str(expr.ty), _up(expr.value)) if _narrow(expr.value) else expr

    def load(expr: TensorLoad) -> Any:
        if expr.source not in wide:
            return expr
        return as_type(str(expr.ty), tirx.BufferLoad(wide[expr.source], expr.indices))

    def store(stmt: tirx.BufferStore) -> Any:
        if stmt.buffer not in wide:
            return stmt
        begins = isinstance(stmt.value, tirx.FloatImm)
        value = tirx.const(_first_value(stmt.value), WIDE) if begins else _up(stmt.value)
        return tirx.BufferStore(wide[stmt.buffer], value, stmt.indices)

    def region(expr: TensorRegion) -> Any:
        known = wide.get(expr.source)
        return expr if known is None else tirx.BufferRegion(known, expr.region)

    def block(stmt: s_tir.SBlock) -> Any:
        if not any(buffer in wide for buffer in stmt.alloc_buffers):
            return stmt
        return with_buffers(stmt, stmt.body, [wide.get(b, b) for b in stmt.alloc_buffers])

    return tvm_ffi.structural_map(
        body,
        [
            (_ARITHMETIC, arithmetic),
            (_ORDER, order),
            (_COMPARISONS, comparison),
            (tirx.Select, choice),
            (Call, call),
            (tirx.Cast, cast),
            (TensorLoad, load),
            (tirx.BufferStore, store),
            (TensorRegion, region),
            (s_tir.SBlock, block),
        ],
    )


def _narrow(expr: Any) -> bool:
    return isinstance(expr.ty, PrimType) and is_narrow(expr.ty)


def _is_rounding(expr: Any) -> bool:
    """Whether this is a float32 value, rounded to a narrow type."""
    return isinstance(expr, tirx.Cast) and _narrow(expr) and str(expr.value.ty) == WIDE


def _up(expr: Any) -> Any:
    """A value as float32, before it was rounded if it was."""
    if _is_rounding(expr):
        return expr.value
    if isinstance(expr, tirx.FloatImm):
        return tirx.const(float(expr.value), WIDE)
    return as_type(WIDE, expr)


def _first_value(constant: tirx.FloatImm) -> float:
    """What a buffer is filled with at first; the lowest and highest numbers stay that.

    Reductions to a maximum begin with the lowest, and a wide value may lie below the narrow one.
    """
    value, dtype = float(constant.value), str(constant.ty)
    for limit in (tirx.min_value, tirx.max_value):
        if value == float(limit(dtype).value):
            return float(limit(WIDE).value)
    return value


def _rounded(wide: Any, like: Any) -> Any:
    return as_type(str(like.ty), wide)


def _call(call: Call, args: list[Any]) -> Call:
    result = WIDE if _narrow(call) else call.ty
    return Call(call.op, args, call.attrs, call.ty_args, call.span, ret_ty=result)


def _allocated(body: Any) -> list[Var]:
    """What blocks of a kernel allocate."""
    found: list[Var] = []
    tvm_ffi.structural_walk(body, [(s_tir.SBlock, lambda block: found.extend(block.alloc_buffers))])
    return found


def _stores(body: Any) -> list[tirx.BufferStore]:
    found: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(body, [(tirx.BufferStore, lambda store: found.append(store))])
    return found


def _rounded_by_program(body: Any) -> list[Var]:
    """What blocks write that say that they round."""
    found: list[Var] = []

    def block(block: s_tir.SBlock) -> None:
        if ROUNDS in block.annotations:
            found.extend(region.source for region in block.writes)

    tvm_ffi.structural_walk(body, [(s_tir.SBlock, block)])
    return found


def _rounds(store: tirx.BufferStore) -> bool:
    """Whether a computed value is rounded where it is stored."""
    return _is_rounding(store.value)


def _accumulates(store: tirx.BufferStore) -> bool:
    """Whether what is stored is computed from what was there before."""
    return _reads(store.value, store.buffer)


def _reads(value: Any, buffer: Var) -> bool:
    def check(load: TensorLoad) -> tvm_ffi.VisitInterrupt | None:
        return tvm_ffi.VisitInterrupt() if load.source.same_as(buffer) else None

    return tvm_ffi.structural_walk(value, [(TensorLoad, check)]) is not None


def _once(buffers: Iterable[Var]) -> list[Var]:
    return list(dict.fromkeys(buffers))
