"""What numbers the reference computes with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collage.cost.reference.values import Array, widen


@dataclass(frozen=True)
class Arithmetic:
    """What values are kept in while a function is evaluated.

    Attributes
    ----------
    float32_in : str
        ``float64`` for float32 tensors that are computed with twice their digits.
    stores : bool
        Whether each operator's result is rounded to its element type, as a program does that keeps
        it in memory; sums inside of an operator are not.
    float32_as : str
        The format that float32 results are rounded to where results are: ``float32``, or fewer
        digits where a library may use them.
    dither : int
        With a seed other than 0, half a unit in the last place is added at random to each result
        before it is rounded: another sample of what rounding does.

    Examples
    --------
    >>> from tvm import relax
    >>> from collage.cost.reference import evaluate
    >>> from collage.testing import graph
    >>> third = graph([(1,)], lambda _, x: relax.op.divide(x, relax.const(3.0)))
    >>> evaluate(third, [np.ones(1, np.float32)], Arithmetic(stores=True, float32_as="float16"))
    [array([0.33325195], dtype=float32)]
    """

    float32_in: str = "float32"
    stores: bool = False
    float32_as: str = "float32"
    dither: int = 0

    def wide(self, array: Array) -> Array:
        """An array in the dtype that is computed in."""
        array = widen(array)
        return array.astype(self.float32_in, copy=False) if array.dtype == np.float32 else array


MEANT = Arithmetic()
"""Half precision in float32, other types as they are."""
