"""Products with constant matrices of few neighbours each, as sums of those alone.

A resize with a filter comes as two products with such matrices, nearly all of which are zeros.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst, Op

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.bands import Band, band_of
from collage.backends.tvm.common.numbers.rounding import WIDE

_TYPES = ("float32", "float16", "bfloat16")
_REDUCTION, _OUT_FUSABLE = 3, 4
"""``kCommReduce`` and ``kOutEWiseFusable`` of ``relax::OpPatternKind``: what is elementwise joins
the one from before, the other from behind."""


def legalize_banded(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """A product with such a matrix, on either side.

    Parameters
    ----------
    builder, call
        What takes the program, and a ``relax.matmul``.

    Returns
    -------
    relax.Expr or None
        None for any other matrix.
    """
    left, right = call.args
    shapes = [tensor_shape(each) for each in (left, right, call)]
    if any(shape is None or len(shape) < 2 or not math.prod(shape) for shape in shapes):
        return None
    if any(str(each.ty.dtype) not in _TYPES for each in (left, right, call)):
        return None
    one, two, wanted = (shape for shape in shapes if shape is not None)
    if isinstance(right, GenericConst) and len(two) == 2:
        data, axis, band = left, len(wanted) - 1, band_of(_numbers(right).T)
    elif isinstance(left, GenericConst) and len(one) == 2:
        data, axis, band = right, len(wanted) - 2, band_of(_numbers(left))
    else:
        return None
    return None if band is None else _summed(builder, call, data, axis, band)


def _numbers(constant: GenericConst) -> np.ndarray:
    return np.asarray(constant.value.numpy()).astype(np.float32)


def _summed(
    builder: relax.BlockBuilder, call: relax.Call, data: relax.Expr, axis: int, band: Band
) -> relax.Expr:
    dtype = str(call.ty.dtype)

    def summed(x: te.Tensor, firsts: te.Tensor, weights: te.Tensor) -> te.Tensor:
        tap = te.reduce_axis((0, band.taps), name="tap")
        shape = list(x.shape)
        shape[axis] = firsts.shape[0]

        def term(*index: tirx.Expr) -> tirx.Expr:
            place = list(index)
            place[axis] = firsts[index[axis]] + tap
            return te.sum(x(*place).astype(WIDE) * weights[tap, index[axis]], axis=tap)

        sums = te.compute(shape, term, name="band")
        if dtype == WIDE:
            return sums
        return te.compute(shape, lambda *index: sums(*index).astype(dtype), name="rounded")

    return builder.call_te(
        summed,
        data,
        relax.const(band.firsts.astype(np.int64)),
        relax.const(band.weights),
        primfunc_name_hint="banded",
        primfunc_attrs={"op_pattern": _REDUCTION if _widened(builder, data) else _OUT_FUSABLE},
    )


def _widened(builder: relax.BlockBuilder, data: relax.Expr) -> bool:
    """Whether it is another tensor's elements in more bits, which cost nothing to widen here."""
    bound = builder.lookup_binding(data) if isinstance(data, relax.Var) else None
    if not isinstance(bound, relax.Call) or bound.op != Op.get("relax.call_tir"):
        return False
    given = bound.args[1].fields
    return (
        len(given) == 1
        and tensor_shape(given[0]) == tensor_shape(data)
        and str(given[0].ty.dtype) in _TYPES[1:]
        and str(data.ty.dtype) == WIDE
    )
