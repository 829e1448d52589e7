"""Several GPUs of one machine: each, with its share of the cores, does work of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.gpu import device


@dataclass(frozen=True)
class Lane:
    """A GPU and the cores that work for it.

    Attributes
    ----------
    gpu : str
        As ``CUDA_VISIBLE_DEVICES`` names it; empty on a machine without one.
    cores : tuple of int
    """

    gpu: str
    cores: tuple[int, ...]

    @property
    def environment(self) -> dict[str, str]:
        """For processes that are to see this GPU alone."""
        return {"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {}

    def enter(self) -> None:
        """Keep this thread, and the threads and processes that it starts, to the lane's cores."""
        os.sched_setaffinity(0, self.cores)


def lanes(gpus: Sequence[str] = ()) -> list[Lane]:
    """One lane for each GPU, the cores divided evenly.

    Parameters
    ----------
    gpus : sequence of str, optional
        All that may be seen; on a machine without GPUs there is one lane all the same.
    """
    names = list(gpus) or device.visible() or [""]
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // len(names))
    # With fewer cores than GPUs some share one.
    begins = [i * share % len(cores) for i in range(len(names))]
    return [
        Lane(name, tuple(cores[begin : begin + share]))
        for name, begin in zip(names, begins, strict=True)
    ]
