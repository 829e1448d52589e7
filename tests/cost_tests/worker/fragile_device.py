"""A device that is lost with the first failure, for worker processes; it runs on the processor.

A worker opens one of the sessions at the end, which say how it fails.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.cost.base import Clocks
from collage.cost.config import MeasureConfig
from collage.cost.device import DevicePolicy
from collage.cost.device.cuda import CudaPolicy
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.worker.session import CpuSession, DeviceLostError

SLOW_UPLOAD_SEC = 1.0


def fragile_policy(how: str) -> DevicePolicy:
    """How a GPU is measured on, for the fragile device."""

    class FragilePolicy(CudaPolicy):
        session = f"{__name__}:{how}"

    return FragilePolicy()


class FragileRunner(LocalRunner):
    """Shows which process runs."""

    @property
    def pid(self) -> int | None:
        return None if self._worker is None else self._worker.pid


class FragileSession(CpuSession):
    """Like a GPU: a failed call is only noticed by whoever waits, and then by everybody."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how
        self._failed = False

    def upload(self, arrays: Sequence[NDArray[np.generic]]) -> list[tvm.runtime.Tensor]:
        self.synchronize()
        if self._how == "slow":
            time.sleep(SLOW_UPLOAD_SEC)
        return super().upload(arrays)

    def call(self, machine: relax.VirtualMachine) -> float:
        try:
            elapsed = super().call(machine)
        except ValueError:
            self._failed = self._how != "sound"
            raise
        self.synchronize()
        return elapsed

    def sample(self, machine: relax.VirtualMachine, config: MeasureConfig) -> tuple[float, ...]:
        if self._how == "stalling":
            self._how = "sound"
            return (config.slow_call_sec + 0.7,)
        return super().sample(machine, config)

    def synchronize(self) -> None:
        if self._failed:
            raise RuntimeError("everything fails from here on")

    def lost(self, error: Exception) -> DeviceLostError | None:
        if not self._failed:
            return None
        return DeviceLostError("broke the context: bad\naddress", crashed=self._how == "fatal")

    def clocks(self) -> Clocks | None:
        return Clocks(1980, 3201)

    def release(self) -> bool:
        return self._how != "full"


sound, slow, fatal, blocked, full, stalling = (
    partial(FragileSession, how)
    for how in ("sound", "slow", "fatal", "blocked", "full", "stalling")
)
