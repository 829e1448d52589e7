"""Operators that TVM has no tensor program for in half precision, or one of another type.

Some of TOPI's functions refuse bfloat16, some give float32 for float16. Here the function runs on
float32 placeholders; what it makes is read and written narrow, all within one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, te, topi

from collage.backends.relax.static_shape import leaf_types, tensor_dtype
from collage.backends.tvm.common.legalization import Legalization, default_legalization
from collage.backends.tvm.common.numbers.rounding import WIDE
from collage.backends.tvm.common.numbers.wide import is_narrow

_OPERATORS = (
    *("isfinite", "isinf", "isnan", "log_add_exp", "power", "nn.batch_norm"),
    *("image.grid_sample", "vision.roi_align", "vision.roi_pool"),
)


def legalize_in_float32(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's own legalization, between casts where an operand has fewer digits than float32.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and any operator that TVM can legalize in float32.

    Returns
    -------
    relax.Expr
        A call of the tensor program, which computes in float32 and gives the dtypes of the given
        call.
    """
    if not any(map(_is_narrow, call.args)):
        return default_legalization(builder, call)
    wide = [_wide_type(arg) for arg in call.args]
    stand_in = builder.normalize(relax.Call(call.op, wide, call.attrs, call.ty_args))
    real = {w: arg for w, arg in zip(wide, call.args, strict=True) if isinstance(w, relax.Var)}
    dtypes = [tensor_dtype(ty) for ty in leaf_types(call.ty)]
    return default_legalization(_CastingBuilder(builder, real, dtypes), stand_in)


IN_FLOAT32: Mapping[str, Legalization] = {
    f"relax.{name}": legalize_in_float32 for name in _OPERATORS
}
"""Those operators, on any device and with any schedule."""


def _is_narrow(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and is_narrow(expr.ty.dtype)


def _wide_type(arg: relax.Expr) -> relax.Expr:
    """A float32 placeholder for a narrow operand; anything else stands for itself."""
    return relax.Var("x", relax.TensorType(arg.ty.shape, WIDE)) if _is_narrow(arg) else arg


class _CastingBuilder:
    """A block builder whose tensor expressions read narrow operands and write narrow results."""

    def __init__(
        self, builder: relax.BlockBuilder, operands: dict[relax.Expr, relax.Expr], dtypes: list[str]
    ) -> None:
        self._builder = builder
        self._operands = operands
        self._dtypes = dtypes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def call_te(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> relax.Call:
        """As :meth:`relax.BlockBuilder.call_te`, with casts around ``function``."""

        def between(*inner: Any, **named: Any) -> Any:
            result = function(*map(_cast_up, inner), **{k: _cast_up(v) for k, v in named.items()})
            many = isinstance(result, list | tuple)
            outputs = list(result) if many else [result]
            narrow = [
                out if str(out.dtype) == dtype else topi.cast(out, dtype)
                for out, dtype in zip(outputs, self._dtypes, strict=True)
            ]
            return narrow if many else narrow[0]

        hint = kwargs.pop("primfunc_name_hint", None) or getattr(function, "__name__", "between")
        args = tuple(self._real(arg) for arg in args)
        kwargs = {key: self._real(value) for key, value in kwargs.items()}
        attrs = kwargs.pop("primfunc_attrs", None)
        return self._builder.call_te(
            between, *args, primfunc_name_hint=hint, primfunc_attrs=attrs, **kwargs
        )

    def _real(self, value: Any) -> Any:
        return self._operands.get(value, value) if isinstance(value, relax.Var) else value


def _cast_up(value: Any) -> Any:
    if isinstance(value, te.Tensor) and is_narrow(value.dtype):
        return topi.cast(value, WIDE)
    if isinstance(value, list | tuple):
        return type(value)(_cast_up(item) for item in value)
    return value
