"""What cuDNN's cases have in common: how they are named, and how near a result has to come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from benchmarks.gpu.cases._case import CudaCase
from benchmarks.gpu.cases.cudnn._graphs import ACTIVATIONS

RTOL = {"float16": 4e-3, "bfloat16": 1.6e-2, "float32": 2e-5}
"""The result is rounded to 11, 8 and 24 bits, a split graph's inner value once more."""
GELU_RTOL = 6e-3
"""cuDNN's float16 GELU, besides the rounding."""

EPILOGUES: tuple[tuple[str, ...], ...] = (
    (),
    ("bias",),
    *((activation,) for activation in ACTIVATIONS),
    *(("bias", activation) for activation in ACTIVATIONS),
)
"""What may follow any convolution or product."""

RESIDUALS: tuple[tuple[str, ...], ...] = tuple(
    (*before, "add", *after)
    for before in ((), ("bias",))
    for after in ((), ("relu",), ("leakyrelu",), ("clip",), ("silu",))
)
"""What besides may follow a convolution that is not transposed."""


def cudnn_case(
    pattern: str,
    dtype: str,
    what: str,
    module: tvm.IRModule,
    rtol: float | None = None,
    **options: Any,
) -> CudaCase:
    """A case by its pattern, data type and what is particular about it."""
    name = f"{pattern}-{dtype}-{what}"
    return CudaCase(name, "cudnn", f"cudnn.{pattern}", module, options, rtol or RTOL[dtype])


def dtype_of(number: int) -> str:
    """One of the three, in turn."""
    return tuple(RTOL)[number % len(RTOL)]


def rtol_of(epilogue: Sequence[str], dtype: str) -> float:
    """How near a result with this epilogue has to come."""
    gelu = any(word.startswith("gelu") for word in epilogue)
    return max(RTOL[dtype], GELU_RTOL) if gelu and dtype != "float32" else RTOL[dtype]
