"""Half-precision operators computed in float32: read narrow, compute wide, round once.

TVM's own legalizations sum float16 products in float16, exponentials of float16 differences too.
Here the very tensor expressions of those legalizations run on operands that were cast first, and
their results are cast back, all within one kernel. Casts that meet when kernels are fused and
inlined cancel (:func:`drop_round_trips`): a fused chain rounds only what it stores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import relax, te, tirx, topi

from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.legalization import (
    OUT_FUSABLE,
    broadcast_index,
    default_legalization,
)

_HALF = ("float16", "bfloat16")
WIDE = "float32"

WIDENED = (
    *("add", "subtract", "multiply", "divide", "power", "sqrt", "rsqrt", "exp", "log", "erf"),
    *("tanh", "sigmoid", "sin", "cos", "square", "log_add_exp", "floor_divide", "floor_mod"),
    *("sinh", "cosh", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2"),
    *("sum", "mean", "variance", "std", "prod", "cumsum"),
    *("nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.softplus", "nn.softmax"),
    *("nn.log_softmax", "nn.layer_norm", "nn.rms_norm", "nn.group_norm", "nn.instance_norm"),
    *("nn.batch_norm", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.attention"),
    *("nn.attention_bias", "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d"),
    *("nn.adaptive_avg_pool3d", "image.resize2d"),
)
"""Operators, without ``relax.``, whose results depend on the precision of the steps inside."""


def is_half(expr: relax.Expr) -> bool:
    """Whether this is a half-precision tensor."""
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) in _HALF


def widened(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's own legalization, in float32 where an operand is of half precision.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Makes the tensor program.
    call : relax.Call
        Any operator that TVM can legalize.
    """
    if not any(is_half(arg) for arg in call.args):
        return default_legalization(builder, call)
    wide = [_wide_type(arg) for arg in call.args]
    # The legalization sees float32 placeholders; what it emits goes to the real operands.
    stand_in = builder.normalize(relax.Call(call.op, wide, call.attrs, call.ty_args))
    real = {w: arg for w, arg in zip(wide, call.args, strict=True) if isinstance(w, relax.Var)}
    return default_legalization(_WideBuilder(builder, real, result_dtypes(call)), stand_in)


def wide_sums(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A matrix product of half-precision operands, accumulated in float32, rounded at the end.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Makes the tensor program.
    call : relax.Call
        A ``matmul``.
    """
    if not any(is_half(arg) for arg in call.args):
        return default_legalization(builder, call)
    (dtype,) = result_dtypes(call)
    shape = static_shape(call)

    def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        depth = te.reduce_axis((0, a.shape[-1]), name="k")
        rows, columns = len(a.shape) > 1, len(b.shape) > 1

        def term(*index: Any) -> Any:
            batch = index[: len(index) - rows - columns]
            left = [*broadcast_index(batch, a.shape[:-2]), *index[len(batch) :][:rows], depth]
            right = [*broadcast_index(batch, b.shape[:-2]), depth, *index[len(index) - columns :]]
            return te.sum(a(*left).astype(WIDE) * b(*right).astype(WIDE), axis=depth)

        sums = te.compute(shape, term, name="matmul")
        return sums if dtype == WIDE else topi.cast(sums, dtype)

    return builder.call_te(
        product,
        *call.args,
        primfunc_name_hint="matmul",
        primfunc_attrs=OUT_FUSABLE,
    )


def drop_round_trips(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Remove roundings to half precision of float32 values that are used as float32 again."""

    def visit(cast: tirx.Cast) -> Any:
        inner = cast.value
        if not isinstance(inner, tirx.Cast) or not _is_scalar(cast, WIDE):
            return cast
        half = any(_is_scalar(inner, dtype) for dtype in _HALF)
        return inner.value if half and _is_scalar(inner.value, WIDE) else cast

    return func.with_body(tvm_ffi.structural_map(func.body, [(tirx.Cast, visit)], order="post"))


def _is_scalar(expr: Any, dtype: str) -> bool:
    return str(expr.ty) == dtype


def _wide_type(arg: relax.Expr) -> relax.Expr:
    """A float32 placeholder for a half-precision operand; anything else stands for itself."""
    if not is_half(arg):
        return arg
    return relax.Var("x", relax.TensorType(arg.ty.shape, WIDE))


def result_dtypes(call: relax.Call) -> list[str]:
    fields = call.ty.fields if isinstance(call.ty, relax.TupleType) else [call.ty]
    return [str(field.dtype) for field in fields]


class _WideBuilder:
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

        def wide(*inner: Any, **named: Any) -> Any:
            result = function(*map(_cast_up, inner), **{k: _cast_up(v) for k, v in named.items()})
            many = isinstance(result, list | tuple)
            outputs = list(result) if many else [result]
            narrow = [
                out if str(out.dtype) == dtype else topi.cast(out, dtype)
                for out, dtype in zip(outputs, self._dtypes, strict=True)
            ]
            return narrow if many else narrow[0]

        hint = kwargs.pop("primfunc_name_hint", None) or getattr(function, "__name__", "wide")
        args = tuple(self._real(arg) for arg in args)
        kwargs = {key: self._real(value) for key, value in kwargs.items()}
        attrs = kwargs.pop("primfunc_attrs", None)
        return self._builder.call_te(
            wide, *args, primfunc_name_hint=hint, primfunc_attrs=attrs, **kwargs
        )

    def _real(self, value: Any) -> Any:
        if isinstance(value, relax.Var):
            return self._operands.get(value, value)
        return value


def _cast_up(value: Any) -> Any:
    if isinstance(value, te.Tensor) and str(value.dtype) in _HALF:
        return topi.cast(value, WIDE)
    if isinstance(value, list | tuple):
        return type(value)(_cast_up(item) for item in value)
    return value
