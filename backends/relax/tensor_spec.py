"""Shape and dtype of a tensor as one value."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax

from collage.backends.relax.static_shape import static_shape, tensor_dtype


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one dense tensor.

    Examples
    --------
    >>> spec = TensorSpec((1, 64, 56, 56), "float16")
    >>> str(spec), spec.size, spec.bits, spec.bytes
    ('1x64x56x56:float16', 200704, 16, 401408)
    """

    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, tensor: relax.Expr | relax.Type) -> TensorSpec:
        """The spec of an expression, or of its type.

        Raises
        ------
        UnsupportedProblemError
            When it has no static shape.
        """
        return TensorSpec(static_shape(tensor), tensor_dtype(tensor))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bits(self) -> int:
        """Of one element."""
        return 8 * np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """Of all elements."""
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def is_integer(self) -> bool:
        """Whether the elements are integers or booleans."""
        return np.dtype(self.dtype).kind in "biu"

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape)) or 'scalar'}:{self.dtype}"
