"""Attributes of a ``cublas`` target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DEFAULT_WORKSPACE_BYTES = 32 * 1024 * 1024
"""What NVIDIA recommends for Hopper (cuBLAS manual, ``cublasSetWorkspace``)."""


@dataclass(frozen=True)
class CublasOptions:
    """What a user may set on a ``cublas`` target.

    Attributes
    ----------
    workspace_limit : int
        Most bytes of scratch memory that an algorithm may use. One block per device is shared by
        all partitions.
    algorithm : {"measured", "heuristic"}
        ``measured`` times cublasLt's best candidates while compiling, where a GPU of the target's
        architecture is there, and stores the fastest. ``heuristic`` takes cublasLt's first choice,
        asked for once per product at the first call; so does ``measured`` without a GPU.
    allow_tf32 : bool
        Let float32 products run on tensor cores, which round their operands to TF32 (10 bits of
        mantissa).
    approximate_gelu : bool
        Let the tanh approximation of GELU, the only one cublasLt has, stand for the exact one.

    Raises
    ------
    ValueError
        When the workspace's limit is negative.
    """

    workspace_limit: int = DEFAULT_WORKSPACE_BYTES
    algorithm: Literal["measured", "heuristic"] = "measured"
    allow_tf32: bool = False
    approximate_gelu: bool = False

    def __post_init__(self) -> None:
        if self.workspace_limit < 0:
            raise ValueError(f"workspace_limit is a count of bytes, not {self.workspace_limit}")
