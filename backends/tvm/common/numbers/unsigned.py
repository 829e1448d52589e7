"""Signs of whole numbers that have none: TVM multiplies by -1 and stops."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax, te, tirx

from collage.backends.tvm.common.legalization import Legalization, default_legalization


def _negative(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """It wraps around, as NumPy's and PyTorch's do: all bits turned, and one more.

    TVM takes what is subtracted from zero for zero.
    """
    (x,) = call.args
    dtype = str(x.ty.dtype)
    if not dtype.startswith("uint"):
        return default_legalization(builder, call)

    def negative(x: te.Tensor) -> te.Tensor:
        one = tirx.const(1, dtype)
        return te.compute(x.shape, lambda *place: tirx.bitwise_not(x(*place)) + one, "negative")

    return builder.call_te(negative, x, primfunc_name_hint="negative")


def _sign(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """One for all but zero."""
    (x,) = call.args
    dtype = str(x.ty.dtype)
    if dtype.startswith("uint"):
        call = builder.normalize(relax.op.minimum(x, relax.const(1, dtype)))
    return default_legalization(builder, call)


UNSIGNED: Mapping[str, Legalization] = {"relax.negative": _negative, "relax.sign": _sign}
"""By operator name."""
