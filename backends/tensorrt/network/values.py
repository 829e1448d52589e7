"""Relax's constants, dtypes and arguments, as converters need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from collage.backends.toolchain import native

Array: TypeAlias = NDArray[Any]

DTYPES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "bfloat16": "BF16",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
}
"""Relax dtypes and TensorRT's names for them."""

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
"""What float32 may become inside a region."""

MAX_RANK = 8
"""``nvinfer1::Dims::MAX_DIMS``."""


def mask(axes: Sequence[int]) -> int:
    """Axes as TensorRT takes them: one bit each."""
    return sum(1 << axis for axis in axes)


def content_key(array: Array) -> str:
    """Equal for equal arrays only; numpy gives no buffer of bfloat16, so its bits are taken."""
    bits = array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array
    return f"{array.dtype}:{native.constant_symbol(bits)}"


def rounded(array: Array, half: np.dtype[Any]) -> Array:
    """Float32 in half precision; finite values stay finite, as masks of -3.4e38 must.

    Parameters
    ----------
    array : ndarray
        Of float32.
    half : np.dtype
        float16, or bfloat16 as ``ml_dtypes`` has it.

    Returns
    -------
    Array
        Of dtype ``half``; infinities and NaN stay what they are.
    """
    limit = 65504.0 if half == np.float16 else 3.3895313892515355e38
    return np.where(np.isfinite(array), np.clip(array, -limit, limit), array).astype(half)
