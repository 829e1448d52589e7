"""A device that is lost with the first failure, for worker processes; it runs on the processor.

A worker that imports this as a plugin takes it for the device ``fragile:<how>``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

import collage.cost.worker.run
from collage.backends.devices import CUDA
from collage.cost.database.record import Clocks
from collage.cost.device import DevicePolicy
from collage.cost.device.cuda import CudaPolicy
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.processes.worker_process import WorkerProcess
from collage.cost.worker.session import CpuSession, DeviceLostError, Session
from tests.cost_tests.toy_backend import ToyBackend

FragileBackend = ToyBackend
PLUGIN = "tests.cost_tests.worker.fragile_device:FragileBackend"


SLOW_UPLOAD_SEC = 1.0


def fragile_policy(how: str) -> DevicePolicy:
    """How a GPU is measured on, for the fragile device."""

    class FragileKind(type(CUDA)):  # type: ignore[misc]
        name = f"fragile:{how}"

    class FragilePolicy(CudaPolicy):
        kind = FragileKind()

    return FragilePolicy()


class FragileRunner(LocalRunner):
    """Its workers know the fragile device."""

    def warm_up(self) -> None:
        if self._worker is None:
            self._worker = WorkerProcess(
                [PLUGIN],
                memory_limit_bytes=self._config.memory_limit_bytes,
                device=self._policy.kind.name,
                open_device=True,
            )

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

    def synchronize(self) -> None:
        if self._failed:
            raise RuntimeError("everything fails from here on")

    def lost(self) -> DeviceLostError | None:
        if not self._failed:
            return None
        return DeviceLostError("broke the context: bad\naddress", crashed=self._how == "fatal")

    def clocks(self) -> Clocks | None:
        return Clocks(1980, 3201)

    def release(self) -> bool:
        return self._how != "full"


def open_session(device_kind: str) -> Session:
    kind, _, how = device_kind.partition(":")
    assert kind == "fragile"
    return FragileSession(how)


patched: Any = collage.cost.worker.run
patched.open_session = open_session
