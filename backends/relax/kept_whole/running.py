"""Running extremes, and sums of exponentials, as operators.

``collage.running_extreme(x)`` with an axis and a direction gives two tensors: the extreme of all up
to each place of the axis, and where it was last, in int64. What is no number stays.

``collage.running_logsumexp(x)`` with an axis gives the logarithm of the sum of the exponentials of
all up to each place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from collage.backends.relax.own_operators import make_known
from collage.backends.relax.static_shape import static_shape

NAME = "collage.running_extreme"
LOGSUMEXP = "collage.running_logsumexp"

_Joined = Callable[[list[relax.Expr], list[relax.Expr]], list[relax.Expr]]
"""What came before some places with what is at them."""


@dataclass(frozen=True)
class RunningExtreme:
    """What a call asks for.

    Attributes
    ----------
    axis : int
        Along which; not negative.
    largest : bool
        Or smallest.
    """

    axis: int
    largest: bool

    @classmethod
    def of(cls, call: relax.Call) -> Self:
        """That of a call of the operator."""
        return cls(int(call.attrs["axis"]), bool(call.attrs["largest"]))


def running_extreme(x: relax.Expr, axis: int, largest: bool) -> relax.Call:
    """A call of the operator.

    Parameters
    ----------
    x : relax.Expr
        Of one dimension or more.
    axis : int
        Along which; not negative.
    largest : bool
        Or smallest.

    Returns
    -------
    relax.Call
        Its type, a pair, is not inferred yet.
    """
    attrs = ir.make_node("ir.DictAttrs", axis=axis, largest=largest)
    return relax.Call(ir.Op.get(NAME), [x], attrs, [])


def _infer(call: relax.Call, _: relax.BlockBuilder) -> relax.Type:
    shape = static_shape(call.args[0])
    kinds = (call.args[0].ty.dtype, "int64")
    return relax.TupleType([relax.TensorType(shape, str(kind)) for kind in kinds])


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    (x,), one, emit = call.args, RunningExtreme.of(call), builder.emit
    shape, axis = static_shape(x), one.axis
    beats = op.greater_equal if one.largest else op.less_equal
    row = np.arange(shape[axis]).reshape([-1, *[1] * (len(shape) - axis - 1)])
    places = relax.const(np.broadcast_to(row, shape).astype("int64"), "int64")

    def joined(before: list[relax.Expr], here: list[relax.Expr]) -> list[relax.Expr]:
        taken = emit(beats(here[0], before[0]))
        if "float" in str(x.ty.dtype):
            taken = emit(op.logical_or(taken, emit(op.isnan(here[0]))))
        pairs = zip(here, before, strict=True)
        return [emit(op.where(taken, mine, other)) for mine, other in pairs]

    return relax.Tuple(_doubled(builder, [x, places], axis, joined))


def _doubled(
    builder: relax.BlockBuilder, values: list[relax.Expr], axis: int, joined: _Joined
) -> list[relax.Expr]:
    """In as many steps as the length has bits."""
    emit, extent, step = builder.emit, static_shape(values[0])[axis], 1

    def part(x: relax.Expr, begin: int, end: int) -> relax.Expr:
        return emit(op.strided_slice(x, [axis], [begin], [end]))

    while step < extent:
        before = [part(each, 0, extent - step) for each in values]
        new = joined(before, [part(each, step, extent) for each in values])
        both = zip(values, new, strict=True)
        values = [emit(op.concat([part(old, 0, step), more], axis)) for old, more in both]
        step *= 2
    return values


def running_logsumexp(x: relax.Expr, axis: int) -> relax.Call:
    """A call of the operator.

    Parameters
    ----------
    x : relax.Expr
        Floating-point numbers of one dimension or more.
    axis : int
        Along which; not negative.

    Returns
    -------
    relax.Call
        Its type is not inferred yet.
    """
    return relax.Call(ir.Op.get(LOGSUMEXP), [x], ir.make_node("ir.DictAttrs", axis=axis), [])


def _infer_same(call: relax.Call, _: relax.BlockBuilder) -> relax.Type:
    return relax.TensorType(static_shape(call.args[0]), str(call.args[0].ty.dtype))


def _legalize_logsumexp(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Of two that are equal it is known, infinite ones too."""
    (x,), emit, kind = call.args, builder.emit, str(call.ty.dtype)

    def joined(before: list[relax.Expr], here: list[relax.Expr]) -> list[relax.Expr]:
        (one,), (two,) = before, here
        apart = emit(op.abs(emit(op.subtract(one, two))))
        more = emit(op.exp(emit(op.negative(apart))))
        more = emit(op.log(emit(op.add(more, relax.const(1.0, kind)))))
        same = emit(op.equal(one, two))
        more = emit(op.where(same, relax.const(math.log(2.0), kind), more))
        return [emit(op.add(emit(op.maximum(one, two)), more))]

    return _doubled(builder, [x], int(call.attrs["axis"]), joined)[0]


make_known(NAME, "The extreme up to each place, and where it was last.", _infer, _legalize)
make_known(
    LOGSUMEXP,
    "The logarithm of the sum of exponentials up to each place.",
    _infer_same,
    _legalize_logsumexp,
)
