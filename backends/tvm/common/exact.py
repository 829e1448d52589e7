"""Legalizations that every schedule on every device needs to be right, TVM's own being not.

TVM's ``relu`` of what is no number is 0. And what a program rounds to half precision by a cast is
rounded, though arithmetic in half precision is computed in float32 (:mod:`.wide`): blocks say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax, te, tirx

from collage.backends.tvm.common.in_float32 import IN_FLOAT32
from collage.backends.tvm.common.legalization import Legalization, default_legalization
from collage.backends.tvm.common.wide import ROUNDS, is_narrow


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


def _cast(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A cast to half precision rounds, whoever reads it."""
    (x,) = call.args
    dtype = str(call.ty.dtype)
    if not is_narrow(dtype) or str(x.ty.dtype) == "bool":
        return default_legalization(builder, call)

    def cast(x: te.Tensor) -> te.Tensor:
        return te.compute(
            *(x.shape, lambda *place: x(*place).astype(dtype), "rounded"), attrs={ROUNDS: 1}
        )

    return builder.call_te(cast, x, primfunc_name_hint="cast")


EXACT: Mapping[str, Legalization] = {
    **IN_FLOAT32,
    "relax.nn.relu": _relu,
    "relax.astype": _cast,
}
"""By operator name."""
