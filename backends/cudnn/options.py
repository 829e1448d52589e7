"""Attributes of a ``cudnn`` target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CudnnOptions:
    """What a user may set on a ``cudnn`` target.

    Attributes
    ----------
    algorithm : {"heuristic", "measured"}
        How a plan is chosen where a GPU is present at compile time: the first one that cuDNN's
        heuristics propose and that can be built, or the fastest of the first few, timed. Without
        a GPU the first call on the device chooses by heuristics.
    workspace_limit : int
        Bytes of scratch memory that a plan may ask for. It is shared by all partitions.
    allow_tf32 : bool
        Let float32 tensors be rounded to TF32 (10 bits of mantissa) for the tensor cores. Sums
        are kept in float32 either way.
    split_unsupported : bool
        Run an operator with an epilogue that cuDNN cannot fuse as two plans, the operator and its
        epilogue, instead of failing.

    Raises
    ------
    ValueError
        When the workspace's limit is negative.
    """

    algorithm: Literal["heuristic", "measured"] = "heuristic"
    workspace_limit: int = 256 << 20
    allow_tf32: bool = False
    split_unsupported: bool = True

    def __post_init__(self) -> None:
        if self.workspace_limit < 0:
            raise ValueError(f"workspace_limit must not be negative: {self.workspace_limit}")
