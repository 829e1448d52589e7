"""Several GPUs of one machine: each, with its share of the cores, does work of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.gpu import device


class Turns:
    """Keeps those who prepare apart from those who time on one GPU.

    Compilers measure under the device's lock, so several may prepare at once. Whoever times waits
    until nobody prepares, and then has it to itself; nobody begins to prepare until all have timed.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._exclusive = threading.Lock()
        self._preparing = 0
        self._timing = 0

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Beside others who prepare."""
        with self._changed:
            self._changed.wait_for(lambda: self._timing == 0)
            self._preparing += 1
        try:
            yield
        finally:
            with self._changed:
                self._preparing -= 1
                self._changed.notify_all()

    @contextmanager
    def timing(self) -> Iterator[None]:
        """With the GPU to oneself."""
        with self._changed:
            self._timing += 1
            self._changed.wait_for(lambda: self._preparing == 0)
        try:
            with self._exclusive:
                yield
        finally:
            with self._changed:
                self._timing -= 1
                self._changed.notify_all()


@dataclass(frozen=True)
class GpuSlot:
    """A GPU and the cores that work for it.

    Attributes
    ----------
    gpu : str
        As ``CUDA_VISIBLE_DEVICES`` names it; empty on a machine without one.
    cores : tuple of int
    turns : Turns
        Shared by the slots of one GPU.
    """

    gpu: str
    cores: tuple[int, ...]
    turns: Turns = field(default_factory=Turns, compare=False)

    @property
    def environment(self) -> dict[str, str]:
        """For processes that are to see no other GPU."""
        return {"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {}

    def enter(self) -> None:
        """Keep this thread, and the threads and processes that it starts, to the slot's cores."""
        os.sched_setaffinity(0, self.cores)


def gpu_slots(gpus: Sequence[str] = (), abreast: int = 1) -> list[GpuSlot]:
    """The slots of each GPU, the cores divided evenly among the GPUs.

    Parameters
    ----------
    gpus : sequence of str, optional
        All that may be seen; a machine without GPUs counts as one.
    abreast : int
        Slots of each GPU, which share its cores. The first slots are of different GPUs.
    """
    names = list(gpus) or device.visible() or [""]
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // len(names))
    # With fewer cores than GPUs some share one.
    begins = [i * share % len(cores) for i in range(len(names))]
    shares = [tuple(cores[begin : begin + share]) for begin in begins]
    turns = [Turns() for _ in names]
    return [
        GpuSlot(*slot) for _ in range(abreast) for slot in zip(names, shares, turns, strict=True)
    ]
