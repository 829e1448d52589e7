"""Medians and modes as an operator: ``collage.order_statistic(x)`` with an axis.

It gives two tensors: the element of each line, and its place in int64; the axis stays, with an
extent of 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import ir, relax
from tvm.relax import op

from collage.backends.relax.kept_whole.running import running_extreme
from collage.backends.relax.own_operators import make_known
from collage.backends.relax.static_shape import static_shape

NAME = "collage.order_statistic"

MEDIAN, NUMBERS_MEDIAN, MODE = "median", "numbers_median", "mode"
"""The lower one of those in the middle, or the first that is no number where there is one; of those
that are numbers; the smallest of the most frequent ones, where it stands last."""


def order_statistic(x: relax.Expr, which: str, axis: int) -> relax.Call:
    """A call of the operator.

    Parameters
    ----------
    x : relax.Expr
        Of one dimension or more, and some elements along the axis.
    which : str
        ``MEDIAN``, ``NUMBERS_MEDIAN`` or ``MODE``.
    axis : int
        Along which; not negative.

    Returns
    -------
    relax.Call
        Its type, a pair, is not inferred yet.
    """
    attrs = ir.make_node("ir.DictAttrs", which=which, axis=axis)
    return relax.Call(ir.Op.get(NAME), [x], attrs, [])


def _infer(call: relax.Call, _: relax.BlockBuilder) -> relax.Type:
    shape = list(static_shape(call.args[0]))
    shape[int(call.attrs["axis"])] = 1
    kinds = (call.args[0].ty.dtype, "int64")
    return relax.TupleType([relax.TensorType(shape, str(kind)) for kind in kinds])


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return relax.Tuple(expanded(builder, call))


def expanded(builder: relax.BlockBuilder, call: relax.Call) -> Sequence[relax.Expr]:
    """What the operator stands for: a sort, and what is looked up in it.

    Parameters
    ----------
    builder, call
        What takes the operators, and a call of this one.

    Returns
    -------
    sequence of relax.Expr
        The elements and their places.
    """
    which, axis = str(call.attrs["which"]), int(call.attrs["axis"])
    steps = {MEDIAN: _median, NUMBERS_MEDIAN: _median_of_numbers, MODE: _mode}[which]
    return steps(builder, call.args[0], axis)


def _median(builder: relax.BlockBuilder, x: relax.Expr, axis: int) -> Sequence[relax.Expr]:
    emit, kind = builder.emit, str(x.ty.dtype)
    middle = (static_shape(x)[axis] - 1) // 2
    order = emit(op.argsort(x, axis, False, "int64"))
    place = emit(op.strided_slice(order, [axis], [middle], [middle + 1]))
    found = emit(op.gather_elements(x, place, axis))
    if "float" not in kind:
        return found, place
    none = emit(op.astype(emit(op.isnan(x)), "int64"))
    missing = emit(op.max(none, [axis], keepdims=True))
    missing = emit(op.greater(missing, relax.const(0, "int64")))
    first = emit(op.argmax(none, axis, keepdims=True))
    found = emit(op.where(missing, relax.const(math.nan, kind), found))
    return found, emit(op.where(missing, first, place))


def _median_of_numbers(
    builder: relax.BlockBuilder, x: relax.Expr, axis: int
) -> Sequence[relax.Expr]:
    """The numbers come first in order."""
    emit, kind = builder.emit, str(x.ty.dtype)
    if "float" not in kind:
        return _median(builder, x, axis)
    numbers = emit(op.logical_not(emit(op.isnan(x))))
    count = emit(op.sum(emit(op.astype(numbers, "int64")), [axis], keepdims=True))
    one, zero = relax.const(1, "int64"), relax.const(0, "int64")
    last = emit(op.maximum(emit(op.subtract(count, one)), zero))
    middle = emit(op.floor_divide(last, relax.const(2, "int64")))
    order = _order(builder, x, axis)
    place = emit(op.gather_elements(order, middle, axis))
    return emit(op.gather_elements(x, place, axis)), place


def _order(builder: relax.BlockBuilder, x: relax.Expr, axis: int) -> relax.Var:
    """What is no number is infinite: not every sort can compare it."""
    emit, kind = builder.emit, str(x.ty.dtype)
    if "float" in kind:
        x = emit(op.where(emit(op.isnan(x)), relax.const(math.inf, kind), x))
    return emit(op.argsort(x, axis, False, "int64"))


def _mode(builder: relax.BlockBuilder, x: relax.Expr, axis: int) -> Sequence[relax.Expr]:
    """Where in the sorted line the run of equals up to there is the longest, for the first time."""
    emit, shape = builder.emit, list(static_shape(x))
    extent = shape[axis]
    order = _order(builder, x, axis)
    longest = emit(op.zeros([1 if i == axis else n for i, n in enumerate(shape)], "int64"))
    if extent > 1:
        ordered = emit(op.gather_elements(x, order, axis))
        before = emit(op.strided_slice(ordered, [axis], [0], [extent - 1]))
        here = emit(op.strided_slice(ordered, [axis], [1], [extent]))
        numbers = [1] * len(shape)
        numbers[axis] = extent - 1
        rank = emit(op.reshape(emit(op.arange(1, extent, 1, "int64")), numbers))
        rank = emit(op.broadcast_to(rank, list(static_shape(here))))
        fresh = emit(op.not_equal(before, here))
        starts = emit(op.where(fresh, rank, relax.const(0, "int64")))
        pair = emit(running_extreme(starts, axis, True))
        times = emit(op.subtract(rank, emit(relax.TupleGetItem(pair, 0))))
        times = emit(op.concat([longest, times], axis))
        longest = emit(op.argmax(times, axis, keepdims=True))
    place = emit(op.gather_elements(order, longest, axis))
    return emit(op.gather_elements(x, place, axis)), place


make_known(NAME, "The middle or the most frequent of each line, and its place.", _infer, _legalize)
