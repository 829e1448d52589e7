"""Measuring on NVIDIA's GPUs, while the processor goes on building."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from collage.backends.contract.errors import (
    BackendUnavailableError,
    MeasurementError,
    TargetError,
)
from collage.backends.devices import CUDA
from collage.backends.toolchain.cuda_driver import CudaDriver, CudaError
from collage.backends.toolchain.cuda_runtime import find_gpu, load_runtime
from collage.backends.toolchain.cuda_toolkit import compute_capability, find_toolkit
from collage.cost.config import MeasureConfig
from collage.cost.device._base import CONDITION, Device, DevicePolicy, LocalDevice
from collage.cost.device.cpu import available_cores
from collage.cost.device.nvml import Management

_JOBS_PER_BUILDER = 4
_KEY = re.compile(r"(.+?), (\d+) SMs, (sm_\d+), (\d+) MiB(?:; (.+))?")

_OTHERS_SHARE = 5
"""Percent of the time in which kernels ran on a device that nobody measures on: a screen's cursor
takes less."""

_IDLE_SEC = 1.05
"""The driver's figure is of the last second at the most."""


class CudaPolicy(DevicePolicy):
    """Held only from the first call to the last one that is timed: code generators use it too."""

    kind = CUDA
    session = "collage.cost.worker.cuda.session:CudaSession"

    def gpu(self, device: Device) -> tuple[str, int] | None:
        return (device.name, compute_capability(device.features)) if self.kind.is_here() else None

    def detect(self) -> Device:
        """The first GPU.

        Raises
        ------
        TargetError
            When there is none, or no driver or runtime for it.
        """
        with self._saying_what():
            return self._detect(0)

    def all_here(self) -> list[LocalDevice]:
        """All GPUs that this process may see; those that MIG parts show it one slice only.

        Raises
        ------
        TargetError
            When there is none, or no driver or runtime for it.
        """
        with self._saying_what():
            devices = [self._detect(0)]
            driver = CudaDriver()
            count = driver.count()
            devices += [self._detect(index) for index in range(1, count)]
            return [
                LocalDevice(
                    f"{self.kind.name}:{index}",
                    device,
                    index,
                    # What a user chose holds for children, too, where there is no choice.
                    {"CUDA_VISIBLE_DEVICES": driver.uuid(index)} if count > 1 else {},
                )
                for index, device in enumerate(devices)
            ]

    @contextmanager
    def _saying_what(self) -> Iterator[None]:
        try:
            yield
        except (BackendUnavailableError, MeasurementError, CudaError) as err:
            raise TargetError(
                f"nothing can be measured for target '{self.kind.target_kind}' on this machine: "
                f"{err}",
                value=self.kind.target_kind,
            ) from err

    def _detect(self, index: int) -> Device:
        load_runtime()
        gpu = find_gpu(index)
        if gpu is None:
            raise MeasurementError("there is no CUDA device", value=self.kind.name)
        driver = CudaDriver()
        management = Management.open(driver.pci_bus_id(index))
        version = management.driver_version() if management is not None else ""
        release = f"CUDA {driver.version()}"
        unusual = () if management is None else management.conditions(driver.uuid(index, "MIG"))
        return Device(
            self.kind.name,
            gpu.name,
            gpu.multiprocessors,
            gpu.arch,
            f"{version}, {release}" if version else release,
            gpu.memory_bytes >> 20,
            unusual,
        )

    def others(self, device: LocalDevice) -> str:
        """See :meth:`DevicePolicy.others`; a device's use by several processes is told by the
        driver wherever these are, their numbers only where they are in sight.
        """
        management = Management.open(CudaDriver().pci_bus_id(device.index))
        if management is None:
            return ""
        time.sleep(_IDLE_SEC)
        share = management.busy_percent()
        if share is None or share <= _OTHERS_SHARE:
            return ""
        who = ", ".join(map(str, management.processes()))
        seen = f" (processes there: {who})" if who else ""
        return f"others compute on it {share} % of the time{seen}"

    def model_key(self, device: Device) -> str:
        return f"{device.name}, {device.cores} SMs, {device.features}, {device.memory_mib} MiB"

    def device_from_key(self, key: str, driver: str) -> Device | None:
        """The GPU that a log names; None where the key is no GPU's."""
        found = _KEY.fullmatch(key)
        if found is None:
            return None
        name, cores, features, memory_mib, unusual = found.groups()
        return Device(
            self.kind.name,
            name,
            int(cores),
            features,
            driver,
            int(memory_mib),
            tuple(unusual.split(CONDITION)) if unusual else (),
        )

    def misfit(self, arch: str, device: Device) -> str:
        if f"sm_{compute_capability(arch)}" == device.features:
            return ""
        return (
            f"the target is {arch}, and the GPU that is measured on ({device.name}) is "
            f"{device.features}: name that, for example cuda:arch={device.features}"
        )

    def builders(self) -> int:
        """Two at the least, and one per core but one, which launches what is timed."""
        return max(2, available_cores() - 1)

    def batch_size(self, builders: int) -> int:
        return _JOBS_PER_BUILDER * builders

    def build_timeout_sec(self, config: MeasureConfig) -> float:
        return config.cuda.build_timeout_sec

    def run_timeout_sec(self, config: MeasureConfig) -> float:
        return config.cuda.run_timeout_sec

    def config_key(self, config: MeasureConfig) -> dict[str, Any]:
        return config.key(self.kind.name)

    def compiler_versions(self) -> Mapping[str, str]:
        return {"nvcc": find_toolkit().version}
