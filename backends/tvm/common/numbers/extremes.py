"""Maxima and minima that begin at infinity: TVM's begin at the largest finite number.

Of a row that is all minus infinity, as a mask of attention makes them, TVM's maximum is finite, and
its place is -1, as it is in a row that is all the least whole number: the zeros of bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import relax, te, tirx

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.legalization import Legalization, default_legalization


@functools.cache
def _known_to_schedules(name: str, combine: Callable[[Any, Any], Any], beginning: float) -> None:
    """Tell TVM's schedules of such a reduction, once.

    They take apart (``rfactor``) what is in their list alone, which has extremes that begin at a
    finite number: those that begin at infinity were computed one element after the other.
    """

    def combined(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        return [combine(left[0], right[0])]

    def first(values: Sequence[Any]) -> list[Any]:
        return [tirx.const(beginning, str(values[0].ty))]

    # TVM's list is cleared after Python has ended: functions have another owner, or it crashes.
    for part, function in (("combined", combined), ("first", first)):
        tvm_ffi.register_global_func(f"collage.{name}.{part}", function, override=True)
    tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")(
        1, *(tvm_ffi.get_global_func(f"collage.{name}.{part}") for part in ("combined", "first"))
    )


def _legalize(name: str, combine: Callable[[Any, Any], Any], beginning: float) -> Legalization:

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        (x,) = call.args
        shape = tensor_shape(x)
        if shape is None or 0 in shape or "float" not in str(x.ty.dtype):
            return default_legalization(builder, call)
        given, kept = call.attrs.axis, bool(call.attrs.keepdims)
        rank = len(shape)
        axes = {int(a) % rank for a in given} if given is not None else set(range(rank))
        if not axes:
            return default_legalization(builder, call)
        _known_to_schedules(name, combine, beginning)
        reducer = te.comm_reducer(combine, lambda t: tirx.const(beginning, t), name=name)
        rest = [1 if i in axes else n for i, n in enumerate(shape) if kept or i not in axes]

        def reduced(operand: te.Tensor) -> te.Tensor:
            inner = {i: te.reduce_axis((0, shape[i]), f"k{i}") for i in sorted(axes)}

            def element(*place: Any) -> Any:
                left = list(place)
                index = []
                for i in range(rank):
                    outer = left.pop(0) if kept or i not in axes else None
                    index.append(inner.get(i, outer))
                return reducer(operand(*index), axis=list(inner.values()))

            return te.compute(rest, element, name)

        return builder.call_te(reduced, x, primfunc_name_hint=name)

    return legalize


def _legalize_place(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's own, but for rows in which nothing exceeds what it begins with: their first place."""
    (x,) = call.args
    if str(x.ty.dtype) == "bfloat16":
        wide = builder.normalize(relax.op.astype(x, "float32"))
        x = builder.emit(default_legalization(builder, wide))
    found = builder.normalize(relax.Call(call.op, [x], call.attrs))
    places = builder.emit(default_legalization(builder, found))
    first = relax.const(0, str(call.ty.dtype))
    return default_legalization(builder, builder.normalize(relax.op.maximum(places, first)))


EXTREMES: Mapping[str, Legalization] = {
    "relax.max": _legalize("max", lambda a, b: tirx.max(a, b), float("-inf")),
    "relax.min": _legalize("min", lambda a, b: tirx.min(a, b), float("inf")),
    **dict.fromkeys(["relax.argmax", "relax.argmin"], _legalize_place),
}
"""The first two for every element type that has infinities."""
