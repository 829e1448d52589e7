"""One ONNX node as a converter sees it: its operands, its attributes, and where to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.relax.static_shape import tensor_shape

Array = NDArray[Any]
Inputs = Sequence[relax.Expr | None]


class Refused(Exception):
    """A node that cannot be converted; the message is the reason, as the user reads it."""


@dataclass(frozen=True)
class Node:
    """A node about to be converted.

    Attributes
    ----------
    builder : relax.BlockBuilder
        Of the function that is being written.
    inputs : sequence of relax.Expr or None
        None where an optional one is left out.
    attributes : dict
        As TVM's importer parses them.
    opset : int
        The operator set of the model.
    """

    builder: relax.BlockBuilder
    inputs: Inputs
    attributes: dict[str, Any]
    opset: int

    @property
    def outputs(self) -> int:
        """How many results are used, those before the last used one included."""
        return int(self.attributes["tvm_custom"]["num_outputs"])

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """An expression bound to a variable, its type known."""
        return self.builder.emit(expr)

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def operand(self, index: int) -> relax.Expr:
        """An input that has to be there.

        Raises
        ------
        Refused
            When it is missing.
        """
        if not self.has(index):
            raise Refused(f"its input {index} is missing")
        return self.inputs[index]

    def shape(self, index: int) -> list[int]:
        """The static shape of an input."""
        return shape_of(self.operand(index))

    def dtype(self, index: int) -> str:
        """The element type of an input."""
        return dtype_of(self.operand(index))

    def constant(self, index: int) -> Array | None:
        """The value of an input that is known now; None for others, and for those left out."""
        return constant_of(self.inputs[index]) if self.has(index) else None

    def fixed(self, index: int, what: str) -> Array:
        """The value of an input that decides shapes, and so has to be known now.

        Parameters
        ----------
        index : int
            Of the input.
        what : str
            What it decides, for the error.

        Returns
        -------
        ndarray
            Of the shape that it has in the graph.

        Raises
        ------
        Refused
            When it is computed while the model runs.
        """
        value = constant_of(self.operand(index))
        if value is None:
            raise Refused(f"its {what} is computed while the model runs; it has to be a constant")
        return value

    def axes(self, index: int, rank: int) -> list[int] | None:
        """The axes that an optional input names, which have to be known now; None without it.

        Parameters
        ----------
        index : int
            Of the input.
        rank : int
            Of the tensor whose axes are named.

        Returns
        -------
        list of int or None
            From 0 to below the rank.

        Raises
        ------
        Refused
            When they are computed while the model runs.
        """
        if not self.has(index):
            return None
        value = constant_of(self.inputs[index])
        if value is None:
            raise Refused("its axes are computed while the model runs; they have to be constants")
        return [int(axis) % rank for axis in value]

    def text(self, name: str, default: str) -> str:
        """An attribute that is a word.

        Parameters
        ----------
        name : str
            The attribute's.
        default : str
            Without it.

        Returns
        -------
        str
            Decoded.
        """
        return _text_of(self.attributes, name, default)

    def integer(self, name: str, default: int) -> int:
        """An attribute that is a whole number.

        Parameters
        ----------
        name : str
            The attribute's.
        default : int
            Without it.

        Returns
        -------
        int
            The value.
        """
        return int(self.attributes.get(name, default))

    def number(self, name: str, default: float) -> float:
        """An attribute that is a number.

        Parameters
        ----------
        name : str
            The attribute's.
        default : float
            Without it.

        Returns
        -------
        float
            The value.
        """
        return float(self.attributes.get(name, default))

    def integers(self, name: str, default: Sequence[int]) -> list[int]:
        """An attribute that is a list of whole numbers.

        Parameters
        ----------
        name : str
            The attribute's.
        default : sequence of int
            Without it.

        Returns
        -------
        list of int
            The values.
        """
        return [int(x) for x in self.attributes.get(name, default)]


Converter = Callable[[Node], relax.Expr | None]
"""Converts a node; None leaves it to TVM's own converter."""


def _text_of(attributes: dict[str, Any], name: str, default: str) -> str:
    """An attribute that is a word, however TVM's importer has parsed it."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def shape_of(expr: relax.Expr) -> list[int]:
    """The static shape of a tensor; refused where it has none.

    Raises
    ------
    Refused
        When it depends on data.
    """
    ty = getattr(expr, "ty", None)
    shape = tensor_shape(ty) if isinstance(ty, relax.TensorType) else None
    if shape is None:
        raise Refused("the shape of an input depends on data")
    return [int(extent) for extent in shape]


def dtype_of(expr: relax.Expr) -> str:
    """The element type of a tensor."""
    return str(expr.ty.dtype.dtype)


def constant_of(expr: relax.Expr | None) -> Array | None:
    """The value of a constant or of a shape, or None."""
    if isinstance(expr, relax.ShapeExpr):
        return np.asarray([int(extent) for extent in expr.values], "int64")
    if isinstance(expr, tvm.ir.GenericConst):
        value: Array = expr.value.numpy()
        return value
    return None


def const(value: Any, dtype: str) -> relax.Expr:
    """A constant of an element type.

    Parameters
    ----------
    value : array_like
        The number or numbers.
    dtype : str
        The element type.

    Returns
    -------
    relax.Expr
        Of the shape of the value.
    """
    return relax.const(np.asarray(value).astype(dtype), dtype)


def vector_shape(rank: int, axis: int, extent: int) -> list[int]:
    """The shape of a vector that lies along one axis and is broadcast along the others.

    Parameters
    ----------
    rank : int
        Of what it is broadcast to.
    axis : int
        Along which it lies.
    extent : int
        How many elements it has.

    Returns
    -------
    list of int
        Ones but for that axis.
    """
    shape = [1] * rank
    shape[axis] = extent
    return shape


def fixed_tensor(value: Array) -> relax.Expr:
    """A constant of an array's own element type, which ``relax.const`` would narrow."""
    return relax.const(value, str(value.dtype))
