"""What rules ask about an expression, and how they make new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.static_shape import static_shape, tensor_shape

RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten")
"""Operators that keep the elements in order and change nothing but the shape."""


def op_name(expr: relax.Expr) -> str:
    """The operator's name without ``relax.``; empty for everything that is no operator call.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    >>> op_name(relax.op.nn.relu(x)), op_name(x)
    ('nn.relu', '')
    """
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name).removeprefix("relax.")
    return ""


def is_tensor(expr: relax.Expr) -> bool:
    """Whether this is a tensor of known, static shape.

    Examples
    --------
    >>> is_tensor(relax.Var("x", relax.TensorType((4, 8), "float32")))
    True
    >>> is_tensor(relax.Var("x", relax.TensorType(ndim=2, dtype="float32")))
    False
    """
    return hasattr(expr, "ty") and tensor_shape(expr) is not None


def dtype_of(expr: relax.Expr) -> str:
    """The element type of a tensor, as numpy names it.

    Examples
    --------
    >>> dtype_of(relax.const(1, "int64"))
    'int64'
    """
    return str(expr.ty.dtype.dtype)


def is_float(expr: relax.Expr) -> bool:
    """Whether a tensor's elements are floating-point numbers.

    Examples
    --------
    >>> is_float(relax.const(1, "int64")), is_float(relax.const(1, "float16"))
    (False, True)
    """
    return "float" in dtype_of(expr)


def constant(expr: relax.Expr) -> np.ndarray | None:
    """The value of an inline constant, or None; not to be written to.

    Examples
    --------
    >>> constant(relax.const([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    >>> constant(relax.Var("x", relax.TensorType((2,), "float32"))) is None
    True
    """
    return constant_data(expr) if isinstance(expr, tvm.ir.GenericConst) else None


def is_constant(expr: relax.Expr) -> bool:
    """Whether an expression is an inline constant.

    Examples
    --------
    >>> is_constant(relax.const(1.0)), is_constant(relax.ShapeExpr((1,)))
    (True, False)
    """
    return isinstance(expr, tvm.ir.GenericConst)


def scalar(expr: relax.Expr) -> float | None:
    """The number in a constant of one element or in an immediate argument, or None.

    Examples
    --------
    >>> scalar(relax.const([[0.5]])), scalar(relax.const([1.0, 2.0]))
    (0.5, None)
    """
    if isinstance(expr, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return float(expr.value)
    if is_constant(expr) and int(np.prod(static_shape(expr))) == 1:
        return float(expr.value.numpy().reshape(()))
    return None


def make_constant(value: np.ndarray | float, dtype: str) -> relax.Expr:
    """An inline constant of exactly this dtype and shape.

    Parameters
    ----------
    value : numpy.ndarray or float
        A number makes a constant without axes.
    dtype : str
        As numpy names it.

    Returns
    -------
    relax.Expr
        A copy where the array's elements are not contiguous.

    Examples
    --------
    >>> constant(make_constant(0.5, "float16"))
    array(0.5, dtype=float16)
    """
    array = np.asarray(value, dtype=dtype)
    return relax.const(array if array.flags.c_contiguous else array.copy(order="C"), dtype)


def operand_pair(call: relax.Call) -> tuple[relax.Expr, relax.Expr] | None:
    """(tensor, constant) of a binary call whose second operand is the only constant one.

    Examples
    --------
    >>> x, two = relax.Var("x", relax.TensorType((4,), "float32")), relax.const(2.0)
    >>> operand_pair(relax.op.multiply(x, two)) == (x, two)
    True
    >>> operand_pair(relax.op.multiply(two, x)) is None
    True
    """
    left, right = call.args[0], call.args[1]
    return (left, right) if is_constant(right) and not is_constant(left) else None


def reshape(x: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """``reshape`` with the shape spelled out.

    Parameters
    ----------
    x : relax.Expr
        A tensor.
    shape : sequence of int
        Of as many elements.

    Returns
    -------
    relax.Expr
        Not emitted yet.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    >>> [int(extent) for extent in reshape(x, (32,)).args[1]]
    [32]
    """
    return relax.op.reshape(x, relax.ShapeExpr(shape))


def permutation(call: relax.Call) -> tuple[int, ...]:
    """The axes of a ``permute_dims``, counted from the front; reversed where it names none.

    Examples
    --------
    >>> from tvm.relax import op
    >>> x = relax.Var("x", relax.TensorType((1, 3, 8, 8), "float32"))
    >>> permutation(op.permute_dims(x, [0, -2, -1, 1])), permutation(op.permute_dims(x))
    ((0, 2, 3, 1), (3, 2, 1, 0))
    """
    rank = len(static_shape(call.args[0]))
    axes = call.attrs.axes
    return tuple(range(rank))[::-1] if axes is None else tuple(int(a) % rank for a in axes)


def with_attrs(call: relax.Call, *args: relax.Expr, **changed: Any) -> relax.Call:
    """The same operator on other operands, with some of its attributes changed.

    Parameters
    ----------
    call : relax.Call
        Of an operator with attributes.
    *args : relax.Expr
        The new operands; those of ``call`` where there are none.
    **changed
        Attributes by name; the others stay.

    Returns
    -------
    relax.Call
        Not emitted yet; attributes that are not named stay as they were.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    >>> with_attrs(relax.op.nn.softmax(x, axis=1), axis=0).attrs.axis
    0
    """
    info = type(call.attrs).__tvm_ffi_type_info__
    fields = {field.name: getattr(call.attrs, field.name) for field in info.fields}
    attrs = tvm.ir.make_node(info.type_key, **fields | changed)
    return relax.Call(call.op, list(args) or call.args, attrs, call.ty_args, call.span)
