"""Values rounded to 256 steps, over their own range as they come or fixed ones, and products.

``collage.stepped_matmul(x, weights, scales[, centres])`` is what quantized networks multiply by:
float32 to float32, with 8-bit integers between. Whoever has no such product writes it out: products
of what the integers stand for come to the same.

- ``x`` (..., K) float32, of two dimensions or more; all of it is rounded to the same steps: those
  that the call's attributes name (:class:`Steps`), or 256 over its own range.
- ``weights`` (K, N) int8.
- ``scales`` (N,) float32, and ``centres`` (N,) float32, whole numbers: a weight ``w`` stands for
  ``(w + centre) * scale``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from collage.backends.relax.own_operators import make_known
from collage.backends.relax.static_shape import static_shape

NAME = "collage.stepped_matmul"

Emit = Callable[[relax.Expr], relax.Expr]


@dataclass(frozen=True)
class Steps:
    """Steps that are known before the values are, from 0 to 255.

    Attributes
    ----------
    step : float
        How far two of them are apart.
    point : int
        Which one stands for zero.
    """

    step: float
    point: int

    @classmethod
    def of(cls, call: relax.Call) -> Self | None:
        """Those of a call; None where its values' own range says."""
        if call.attrs is None:
            return None
        return cls(float(call.attrs["step"]), int(call.attrs["point"]))


def _in_fixed_steps(
    emit: Emit, x: relax.Expr, steps: Steps
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """As :func:`in_steps`, to steps that are known."""
    scale, point = (relax.const(np.float32(value)) for value in (steps.step, steps.point))
    shifted = emit(op.add(emit(op.round(emit(op.divide(x, scale)))), point))
    return emit(op.clip(shifted, 0, 255)), scale, point


def in_steps(emit: Emit, x: relax.Expr) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Values as whole numbers from 0 to 255 over their own range, its step, and where zero is.

    Parameters
    ----------
    emit : callable
        Binds an expression to a variable.
    x : relax.Expr
        float32.

    Returns
    -------
    tuple[relax.Expr, relax.Expr, relax.Expr]
        Whole numbers in float32, the step, and the number that stands for zero.
    """
    zero, most, one = (relax.const(np.float32(value)) for value in (0.0, 255.0, 1.0))
    low = emit(op.minimum(emit(op.min(x)), zero))
    high = emit(op.maximum(emit(op.max(x)), zero))
    scale = emit(op.divide(emit(op.subtract(high, low)), most))
    # All zeros: any scale will do, as long as nothing is divided by nothing.
    scale = emit(op.where(emit(op.equal(scale, zero)), one, scale))
    negative = emit(op.negative(emit(op.divide(low, scale))))
    point = emit(op.round(emit(op.clip(negative, 0, 255))))
    shifted = emit(op.add(emit(op.round(emit(op.divide(x, scale)))), point))
    return emit(op.clip(shifted, 0, 255)), scale, point


def stepped(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Values rounded to those steps, as products of 8-bit integers see them.

    Parameters
    ----------
    emit, x
        As :func:`in_steps` takes them.

    Returns
    -------
    relax.Expr
        Of the shape and dtype of ``x``.
    """
    values, scale, point = in_steps(emit, x)
    return emit(op.multiply(emit(op.subtract(values, point)), scale))


def stepped_matmul(
    x: relax.Expr, weights: np.ndarray, scales: np.ndarray, steps: Steps | None = None
) -> relax.Call:
    """A call of the operator for weights that are whole numbers.

    Parameters
    ----------
    x : relax.Expr
        float32, of two dimensions or more.
    weights : ndarray
        (K, N) whole numbers, each column's within a range of 256: bytes less their zero points.
    scales : ndarray
        What each column is multiplied by, or a single number.
    steps : Steps, optional
        What ``x`` is rounded to.

    Returns
    -------
    relax.Call
        Its weights are int8 around a centre for each column; its type is not inferred yet.

    Examples
    --------
    A column that reaches beyond 8 bits has a centre:

    >>> x = relax.Var("x", relax.TensorType((4, 2), "float32"))
    >>> weights = np.array([[-3, 0], [5, 200]])
    >>> call = stepped_matmul(x, weights, np.float32(0.5))
    >>> call.args[1].value.numpy().tolist(), call.args[3].value.numpy().tolist()
    ([[-3, -73], [5, 127]], [0.0, 73.0])
    """
    low, high = weights.min(0), weights.max(0)
    centres = np.maximum(high - 127, 0) + np.minimum(low + 128, 0)
    whole = np.broadcast_to(scales, centres.shape).astype(np.float32)
    operands = [x, relax.const((weights - centres).astype(np.int8)), relax.const(whole)]
    if centres.any():
        operands.append(relax.const(centres.astype(np.float32)))
    return stepped_call(operands, steps)


def stepped_call(operands: Sequence[relax.Expr], steps: Steps | None = None) -> relax.Call:
    """A call of the operator for operands as it takes them.

    Parameters
    ----------
    operands : sequence of relax.Expr
        Values, int8 weights, float32 scales, and where weights have them, centres.
    steps : Steps, optional
        As :func:`stepped_matmul` takes them.

    Returns
    -------
    relax.Call
        Its type is not inferred yet.
    """
    attrs = None
    if steps is not None:
        attrs = ir.make_node("ir.DictAttrs", step=steps.step, point=steps.point)
    return relax.Call(ir.Op.get(NAME), list(operands), attrs, [])


def is_product(weights: np.ndarray, x_shape: Sequence[int]) -> bool:
    """Whether the operator takes these weights, as :func:`stepped_matmul` is given them.

    Parameters
    ----------
    weights : ndarray
        Whole numbers.
    x_shape : sequence of int
        Of what is multiplied by them.

    Returns
    -------
    bool
        False unless they are a matrix whose columns span at most 255 steps.
    """
    if weights.ndim != 2 or 0 in weights.shape or len(x_shape) < 2 or 0 in x_shape:
        return False
    return bool((weights.max(0) - weights.min(0) <= 255).all() and np.abs(weights).max() <= 255)


def write_out(emit: Emit, call: relax.Call) -> relax.Expr:
    """The operator by others, float32 throughout.

    The sums are of whole numbers and scaled behind: as exact as float32 has digits for them.

    Parameters
    ----------
    emit : callable
        Binds an expression to a variable.
    call : relax.Call
        Of the operator.

    Returns
    -------
    relax.Expr
        Not emitted yet.
    """
    x, weights, scales, *centres = call.args
    steps = Steps.of(call)
    values, step, point = _in_fixed_steps(emit, x, steps) if steps else in_steps(emit, x)
    whole = _in_float32(emit, weights, centres)
    total = emit(op.matmul(emit(op.subtract(values, point)), whole))
    return op.multiply(total, emit(op.multiply(scales, step)))


def _in_float32(emit: Emit, weights: relax.Expr, centres: Sequence[relax.Expr]) -> relax.Expr:
    """The whole numbers of weights; of constants a constant, which backends pack."""
    if isinstance(weights, ir.GenericConst):
        values = weights.value.numpy().astype(np.float32)
        return relax.const(sum((centre.value.numpy() for centre in centres), values))
    whole = emit(op.astype(weights, "float32"))
    return emit(op.add(whole, centres[0])) if centres else whole


def _infer(call: relax.Call, _: relax.BlockBuilder) -> relax.Type:
    x, weights = static_shape(call.args[0]), static_shape(call.args[1])
    return relax.TensorType((*x[:-1], weights[1]), "float32")


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return write_out(builder.emit, call)


make_known(NAME, "A product of values in 256 steps over their own range.", _infer, _legalize)
