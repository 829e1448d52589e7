"""Attributes of a ``cutlass`` target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CutlassOptions:
    """What a user may set on a ``cutlass`` target.

    Attributes
    ----------
    sm : 80, 90 or None
        Newest generation of kernels to use: 90 adds Hopper's warp-specialized TMA kernels to the
        tensor-core kernels of 80, which run there as well. None follows the device's architecture.
    use_3xtf32 : bool
        Run float32 on tensor cores as three TF32 products, to nearly float32's accuracy; otherwise
        on the ordinary cores. ``allow_tf32`` goes before it.
    allow_tf32 : bool
        Run float32 on tensor cores rounded to TF32: ten bits of fraction, fastest.
    split_k_slices : int or str
        Into how many slices a kernel may cut the reduced axis to keep all multiprocessors busy. One
        number, or several separated by commas (``"1,2,8"``): each is a candidate where it fits the
        shape. ``"auto"`` chooses by the shape.
    profile_all_alignments : bool
        Also try memory accesses narrower than the widest that the shape allows.
    find_first_valid : bool
        Take the first configuration that compiles and runs, in the heuristic's order, and measure
        none.
    use_multiprocessing : bool
        Compile kernels in parallel.
    threads : int
        Kernels compiled at once; 0 for one per core, as far as memory goes.
    use_fast_math : bool
        Compile with nvcc's ``--use_fast_math``: faster, less exact exponentials and divisions.
    tmp_dir : str
        Folder that keeps the generated sources to be looked at; empty keeps none.

    Raises
    ------
    ValueError
        When ``sm``, ``split_k_slices`` or ``threads`` is none of what stands above.
    """

    sm: Literal[80, 90] | None = None
    use_3xtf32: bool = True
    allow_tf32: bool = False
    split_k_slices: int | str = "auto"
    profile_all_alignments: bool = False
    find_first_valid: bool = False
    use_multiprocessing: bool = True
    threads: int = 0
    use_fast_math: bool = False
    tmp_dir: str = ""

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise ValueError(f"threads must be 0 or more, not {self.threads}")
        if self.sm not in (None, 80, 90):
            raise ValueError(f"sm must be 80 or 90, not {self.sm}")
        self.split_k_candidates()

    def split_k_candidates(self) -> tuple[int, ...] | None:
        """The slice counts to try, or None where the shape decides.

        Raises
        ------
        ValueError
            When ``split_k_slices`` is neither a number, a list of numbers nor ``auto``.
        """
        if self.split_k_slices == "auto":
            return None
        words = str(self.split_k_slices).split(",")
        if not all(word.strip().isdigit() and 1 <= int(word) <= 64 for word in words):
            raise ValueError(
                "split_k_slices must be 'auto', a number from 1 to 64 or several separated by "
                f"commas, not {self.split_k_slices!r}"
            )
        return tuple(dict.fromkeys(int(word) for word in words))

    def generation(self, arch: str) -> int:
        """80 or 90: the newest generation of kernels to use for an architecture such as sm_90a."""
        # Hopper's instructions (wgmma, TMA) are architecture-specific: only sm_90a runs them.
        native = 90 if arch == "sm_90a" else 80
        return native if self.sm is None else min(self.sm, native)
