"""Which GPU of a machine runs what: all configurations of a spec are compared on the same one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collage.backends.cutlass.families import KernelSpec
from collage.backends.toolchain.cuda_driver import CudaDriver
from collage.backends.toolchain.cuda_runtime import find_gpu


@dataclass(frozen=True)
class GpuPlace:
    """A GPU of this machine.

    Attributes
    ----------
    index : int
        As this process counts those that it may see.
    environment : mapping of str to str
        What a process must have in its environment that is to see no other one.
    """

    index: int = 0
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)


def gpus_alike() -> list[GpuPlace]:
    """The GPUs that this process may see and that are like the first one; at least that one."""
    driver, first = CudaDriver(), find_gpu()
    count = driver.count()
    if count < 2:
        return [GpuPlace()]
    return [
        GpuPlace(index, {"CUDA_VISIBLE_DEVICES": driver.uuid(index)})
        for index in range(count)
        if find_gpu(index) == first
    ]


class Turns:
    """Hands out jobs to whoever has nothing to do; thread-safe.

    Parameters
    ----------
    specs : sequence of KernelSpec
        What each job runs, in the order in which they are built.
    """

    def __init__(self, specs: Sequence[KernelSpec]) -> None:
        self._left = dict(enumerate(specs))
        self._owners: dict[KernelSpec, int] = {}
        self._lock = threading.Lock()

    def take(self, gpu: int) -> int | None:
        """The next job for a GPU, by its number; None when all that is left is another GPU's.

        Parameters
        ----------
        gpu : int
            Its index. A spec is of the GPU that was given the first of its jobs.
        """
        with self._lock:
            for number, spec in self._left.items():
                if self._owners.setdefault(spec, gpu) == gpu:
                    del self._left[number]
                    return number
            return None

    def close(self) -> None:
        """Hand out nothing more."""
        with self._lock:
            self._left.clear()
