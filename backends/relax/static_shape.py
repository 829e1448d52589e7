"""Shapes and dtypes of tensors as plain Python values, from expressions or from their types."""

from __future__ import annotations

import tvm
from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError


def tensor_shape(tensor: relax.Expr | relax.Type) -> tuple[int, ...] | None:
    """The static shape of a tensor, or None where it is no tensor or not static.

    Examples
    --------
    >>> tensor_shape(relax.TensorType((8, 16), "float32"))
    (8, 16)
    >>> tensor_shape(relax.TensorType((tvm.tirx.Var("n", "int64"), 16), "float32")) is None
    True
    """
    ty = tensor if isinstance(tensor, tvm.ir.Type) else tensor.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    try:
        return tuple(int(extent) for extent in ty.shape.values)
    except (TypeError, ValueError):
        return None


def static_shape(tensor: relax.Expr | relax.Type, what: str = "a tensor") -> tuple[int, ...]:
    """The static shape of a tensor that must have one.

    Parameters
    ----------
    tensor : relax.Expr or relax.Type
        An expression or its type.
    what : str
        Names it in the error.

    Returns
    -------
    tuple of int
        Extents, none of them symbolic.

    Raises
    ------
    UnsupportedProblemError
        When it has none.

    Examples
    --------
    >>> static_shape(relax.Var("x", relax.TensorType((8, 16), "float32")))
    (8, 16)
    >>> static_shape(relax.TensorType(ndim=2, dtype="float32"), "the weight")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.UnsupportedProblemError: the weight has no static shape: ...
    """
    shape = tensor_shape(tensor)
    if shape is None:
        ty = tensor if isinstance(tensor, tvm.ir.Type) else tensor.ty
        raise UnsupportedProblemError(f"{what} has no static shape: {ty}", value=ty)
    return shape


def tensor_dtype(tensor: relax.Expr | relax.Type) -> str:
    """The dtype of a tensor, given by an expression or its type; a type's text where it is none.

    Examples
    --------
    >>> tensor_dtype(relax.Var("x", relax.TensorType((8, 16), "float16")))
    'float16'
    """
    ty = tensor if isinstance(tensor, tvm.ir.Type) else tensor.ty
    return str(ty.dtype) if isinstance(ty, relax.TensorType) else str(ty)


def leaf_types(ty: relax.Type) -> list[relax.Type]:
    """The types in a nested tuple type, in order; of anything else itself."""
    if isinstance(ty, relax.TupleType):
        return [leaf for field in ty.fields for leaf in leaf_types(field)]
    return [ty]
