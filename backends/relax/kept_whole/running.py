"""Running extremes as an operator: ``collage.running_extreme(x)`` with an axis and a direction.

It gives two tensors: the extreme of all up to each place of the axis, and where it was last, in
int64. What is no number stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from collage.backends.relax.own_operators import make_known
from collage.backends.relax.static_shape import static_shape

NAME = "collage.running_extreme"


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
    """In as many steps as the length has bits."""
    (x,), one, emit = call.args, RunningExtreme.of(call), builder.emit
    shape, axis = static_shape(x), one.axis
    beats = op.greater_equal if one.largest else op.less_equal
    row = np.arange(shape[axis]).reshape([-1, *[1] * (len(shape) - axis - 1)])
    places = relax.const(np.broadcast_to(row, shape).astype("int64"), "int64")

    def part(x: relax.Expr, begin: int, end: int) -> relax.Expr:
        return emit(op.strided_slice(x, [axis], [begin], [end]))

    values, step = [x, places], 1
    while step < shape[axis]:
        before = [part(each, 0, shape[axis] - step) for each in values]
        here = [part(each, step, shape[axis]) for each in values]
        taken = emit(beats(here[0], before[0]))
        if "float" in str(x.ty.dtype):
            taken = emit(op.logical_or(taken, emit(op.isnan(here[0]))))
        pairs = zip(here, before, strict=True)
        new = [emit(op.where(taken, mine, other)) for mine, other in pairs]
        both = zip(values, new, strict=True)
        values = [emit(op.concat([part(old, 0, step), more], axis)) for old, more in both]
        step *= 2
    return relax.Tuple(values)


make_known(NAME, "The extreme up to each place, and where it was last.", _infer, _legalize)
