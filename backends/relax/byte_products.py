"""Products that can be computed in bytes, and their weights as such.

A product qualifies where one operand is constant: a convolution's weights, or a matrix. Weights are
whole numbers around zero from -127 to 127, with a scale for each output channel; the other operand
is rounded to :class:`~collage.backends.relax.stepped.Steps` that samples told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract import Verdict
from collage.backends.relax.static_shape import static_shape, tensor_dtype, tensor_shape
from collage.backends.relax.stepped import is_product

MOST = 127
"""Weights are whole numbers up to it."""

MOST_IN_PAIRS = 63
"""Where a processor adds two products in 16 bits, as AVX2 does: more would be cut off."""


@dataclass(frozen=True)
class ByteProduct:
    """A convolution or matrix product with constant weights.

    Attributes
    ----------
    call : relax.Call
        Its first operand is what is rounded to steps.
    axis : int
        Of the weights, counts output channels.

    Examples
    --------
    >>> from collage.testing import constant
    >>> x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    >>> product = ByteProduct.of(relax.op.matmul(x, constant(8, 3)))
    >>> whole, scales = product.whole_weights()
    >>> whole.dtype.name, int(np.abs(whole).max()), scales.shape
    ('int8', 127, (3,))
    """

    call: relax.Call
    axis: int

    @classmethod
    def of(cls, value: relax.Expr) -> ByteProduct | None:
        """The product that a binding computes; None where it is none that bytes can stand for."""
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            return None
        name = str(value.op.name)
        is_convolution = name.startswith("relax.nn.conv") and not name.endswith("_transpose")
        if not is_convolution and name != "relax.matmul":
            return None
        x, weights = value.args[:2]
        if not isinstance(x, relax.Var) or not isinstance(weights, tvm.ir.GenericConst):
            return None
        if any(tensor_dtype(arg) != "float32" for arg in (x, weights)):
            return None
        shape = tensor_shape(x)
        if shape is None or 0 in shape or 0 in static_shape(weights):
            return None
        if is_convolution:
            return cls(value, str(value.attrs.kernel_layout).index("O"))
        fits = is_product(np.zeros(static_shape(weights), np.int8), shape)
        return cls(value, 1) if fits else None

    @property
    def is_convolution(self) -> bool:
        """Whether it is no product of matrices."""
        return str(self.call.op.name) != "relax.matmul"

    @property
    def operand(self) -> relax.Var:
        """What is rounded to steps."""
        return self.call.args[0]

    def whole_weights(self, most: int = MOST) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Signed bytes in the weights' shape, and what those of each output channel are multiples
        of; ``most`` is the largest of them."""
        weights = self.call.args[1].value.numpy()
        others = tuple(i for i in range(weights.ndim) if i != self.axis)
        largest = np.abs(weights).max(others)
        scales = np.where(largest > 0, largest, 1.0).astype(np.float32) / np.float32(most)
        whole = np.rint(weights / scales.reshape(self._along(weights.ndim)))
        return np.clip(whole, -most, most).astype(np.int8), scales

    def rounded_weights(self, most: int = MOST) -> NDArray[np.float32]:
        """What those bytes stand for."""
        whole, scales = self.whole_weights(most)
        meant: NDArray[np.float32] = whole * scales.reshape(self._along(whole.ndim))
        return meant

    def _along(self, rank: int) -> tuple[int, ...]:
        return tuple(-1 if i == self.axis else 1 for i in range(rank))


def accepts_bytes(operators: Sequence[relax.Expr], has_instructions: bool) -> Verdict:
    """Whether a region is worth being computed in bytes.

    Parameters
    ----------
    operators : sequence of relax.Expr
        What the region computes.
    has_instructions : bool
        Whether the processor multiplies bytes.

    Returns
    -------
    Verdict
        No, with the reason, where it would compute the same as in float32, or no faster.
    """
    if not has_instructions:
        return Verdict.no("this processor has no instructions for products of bytes")
    if all(ByteProduct.of(operator) is None for operator in operators):
        return Verdict.no("it has no product with constant weights: nothing is computed in bytes")
    return Verdict.yes()
