"""What a backend says of its kernels: with how many digits they compute, and how fast they are."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Precision(enum.Enum):
    """How a backend computes with float32 tensors; other tensors it computes with as they are.

    Examples
    --------
    >>> Precision.TF32.form, Precision.TF32X3.form
    ('tf32', 'float32')
    """

    FLOAT32 = "float32"
    """With all of their digits."""
    TF32X3 = "3xtf32"
    """As three products rounded to TF32, which make up nearly all of them."""
    TF32 = "tf32"
    """Rounded to TF32: ten bits of fraction, as many as float16 has."""
    FLOAT16 = "float16"
    """Rounded to float16."""
    BFLOAT16 = "bfloat16"
    """Rounded to bfloat16, or to less."""
    INT8 = "int8"
    """Products of values that were rounded to 256 steps, whose scales samples told."""

    @property
    def form(self) -> str:
        """The format with the fewest digits that a float32 value may be rounded to."""
        return "float32" if self is Precision.TF32X3 else self.value


@dataclass(frozen=True)
class Roofline:
    """The share of a device's limits that a backend's kernels typically reach.

    Rules of thumb, not measurements: they rank candidates for a device that is not here.

    Attributes
    ----------
    matmul, convolution, attention : float
        Of the arithmetic limit.
    memory : float
        Of the bandwidth.
    partition_sec : float
        What entering one of its partitions takes, whatever is in it.
    operator_sec : float or None
        What each operator in a partition takes besides, however small: a call of the library's
        with what that prepares and waits for. None where partitions are made of kernels that the
        device launches, which the device's data sheet has.

    Examples
    --------
    >>> Roofline(matmul=0.8).matmul, Roofline().operator_sec is None
    (0.8, True)
    """

    matmul: float = 0.50
    convolution: float = 0.50
    attention: float = 0.50
    memory: float = 0.70
    partition_sec: float = 0.0
    operator_sec: float | None = None
