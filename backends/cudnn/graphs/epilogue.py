"""What follows a convolution or matrix product in one graph: residual, bias, activation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cudnn.problem import GraphBuilder, Kind
from collage.backends.relax.calls.strided_views import View

ACTIVATIONS = {
    "relax.nn.relu": Kind.RELU,
    "relax.clip": Kind.RELU,
    "relax.nn.leakyrelu": Kind.RELU,
    "relax.sigmoid": Kind.SIGMOID,
    "relax.tanh": Kind.TANH,
    "relax.nn.silu": Kind.SILU,
    "relax.nn.gelu": Kind.GELU,
    "relax.nn.gelu_tanh": Kind.GELU_TANH,
    # x * sigmoid(x), the chain that some importers leave of silu
    "relax.multiply": Kind.SILU,
}
"""Kinds by the operator at an activation's root."""


@dataclass(frozen=True)
class Activation:
    """An activation and, for a ReLU, its bounds and its slope below the lower one."""

    kind: Kind
    floats: tuple[float, ...] = ()


@dataclass(frozen=True)
class Epilogue:
    """``activation(value + residual + bias)``; what is absent is None.

    Attributes
    ----------
    bias, residual : tuple of int, optional
        Shapes as Relax has them.

    Examples
    --------
    >>> Epilogue(bias=(64,), activation=Activation(Kind.SIGMOID)).residual is None
    True
    """

    bias: tuple[int, ...] | None = None
    residual: tuple[int, ...] | None = None
    activation: Activation | None = None


def activation_of(root: relax.Expr) -> Activation | None:
    """The activation whose root a call is, or None where it is none.

    Raises
    ------
    UnsupportedProblemError
        For a ``clip`` that is no ReLU with an upper bound.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((4, 8), "float16"))
    >>> activation_of(relax.op.sigmoid(x)).kind.name
    'SIGMOID'
    """
    if not isinstance(root, relax.Call) or str(root.op.name) not in ACTIVATIONS:
        return None
    name = str(root.op.name)
    kind = ACTIVATIONS[name]
    if kind is not Kind.RELU:
        return Activation(kind)
    if name == "relax.nn.relu":
        return Activation(kind, (0.0, math.inf, 0.0))
    if name == "relax.nn.leakyrelu":
        return Activation(kind, (0.0, math.inf, float(root.attrs.alpha)))
    lower, upper = (float(bound.value) for bound in root.args[1:])
    if lower != 0.0 or not upper > 0.0:
        raise UnsupportedProblemError(
            f"clip to [{lower:g}, {upper:g}] is no ReLU; only a lower bound of 0 is supported"
        )
    return Activation(kind, (lower, upper, 0.0))


def check_bias(shape: tuple[int, ...], result: tuple[int, ...], axis: int) -> None:
    """Check that a bias has one value per index of the result's axis.

    Parameters
    ----------
    shape : tuple of int
        Of the bias.
    result : tuple of int
        Shape of what it is added to.
    axis : int
        Of the result; its channels.

    Raises
    ------
    UnsupportedProblemError
        When it has another shape.
    """
    padded = (1,) * (len(result) - len(shape)) + shape
    wanted = tuple(extent if index == axis else 1 for index, extent in enumerate(result))
    if padded != wanted:
        raise UnsupportedProblemError(
            f"bias of shape {shape} is not one value per channel of {result}"
        )
    if math.prod(wanted) == 1:
        # A constant of one element stays in the partition; there is no argument to bind.
        raise UnsupportedProblemError("a bias of a single value is not supported")


def add_epilogue(
    builder: GraphBuilder, value: int, epilogue: Epilogue, view: View, bias: View | None
) -> None:
    """Append an epilogue to an operation's output.

    The residual is added before the bias: cuDNN's precompiled engines know that order only.

    Parameters
    ----------
    builder : GraphBuilder
        Has the operation; gets a slot for each of bias and residual, and the operations on them.
    value : int
        Index of the operation's output.
    epilogue : Epilogue
        Its residual has the result's shape; of its bias, ``bias`` is the view.
    view : View
        The result's.
    bias : View or None
        The bias's, broadcast to the result.
    """
    addends = []
    if bias is not None:
        addends.append(builder.input(bias))
    if epilogue.residual is not None:
        addends.append(builder.input(view))
    for addend in reversed(addends):
        value = builder.apply(Kind.ADD, (value, addend), view)
    if epilogue.activation is not None:
        activation = epilogue.activation
        builder.apply(activation.kind, (value,), view, floats=activation.floats)


def same_dtype(*exprs: relax.Expr) -> str:
    """The dtype that all tensors have.

    Raises
    ------
    UnsupportedProblemError
        When they differ.
    """
    dtypes = list(dict.fromkeys(str(expr.ty.dtype) for expr in exprs))
    if len(dtypes) > 1:
        raise UnsupportedProblemError(f"dtypes {' and '.join(dtypes)} are mixed")
    return dtypes[0]
