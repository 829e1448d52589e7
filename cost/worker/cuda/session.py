"""A worker process's use of a CUDA device."""

from __future__ import annotations

import time

import tvm
import tvm_ffi
from tvm import relax

from collage.backends.contract.errors import BackendUnavailableError, MeasurementError
from collage.backends.toolchain.cuda_driver import CudaDriver, CudaError
from collage.backends.toolchain.cuda_runtime import load_runtime
from collage.cost.base import Clocks
from collage.cost.config import CudaConfig, MeasureConfig
from collage.cost.device.nvml import Management
from collage.cost.worker.cuda.flush import CacheFlush
from collage.cost.worker.cuda.timers import CudaTimer, open_timer
from collage.cost.worker.sampling import take_samples, take_single_samples
from collage.cost.worker.session import DeviceLostError, Session

_CAPTURING_CALLS = 2
"""Calls after the first in which the virtual machine may still capture CUDA graphs."""

_LAUNCH_PROBES = 3

_ENOUGH_MEMORY = 0.5
"""The share of the memory that was free at first that must be free for another candidate."""

_LEAD_FACTOR = 2.0
"""By how much the work in front of a sample outlasts launching it."""


class CudaSession(Session):
    """The first CUDA device that this process may see.

    Raises
    ------
    MeasurementError
        When there is none, or its driver does not work.
    """

    def __init__(self) -> None:
        try:
            load_runtime()
            device = tvm.cuda(0)
            if not device.exist:
                raise MeasurementError("there is no CUDA device", value="cuda")
            super().__init__(device)
            # The first allocation makes the primary context, which everything below acts on.
            self._first = tvm.runtime.empty((1,), "int32", device)
            self._driver = CudaDriver()
            self._timer: CudaTimer = open_timer(device)
            self._management = Management.open(self._driver.pci_bus_id(device.index))
            self._free_bytes = int(device.available_global_memory)
            self._flushes: dict[float, tuple[tvm.runtime.Tensor, CacheFlush]] = {}
        except (BackendUnavailableError, CudaError) as err:
            raise MeasurementError(f"the CUDA device cannot be used: {err}", value="cuda") from err

    def call(self, machine: relax.VirtualMachine) -> float:
        begin = time.perf_counter()
        machine.invoke_stateful("main")
        self.synchronize()
        return time.perf_counter() - begin

    def settle(self, machine: relax.VirtualMachine) -> None:
        for _ in range(_CAPTURING_CALLS):
            self.call(machine)

    def sample(self, machine: relax.VirtualMachine, config: MeasureConfig) -> tuple[float, ...]:
        """One call per sample, the cache flushed before it, its launch hidden behind the flush."""
        elapsed = self.call(machine)
        if elapsed > config.slow_call_sec:
            return (elapsed,)
        flush = self._flush(config.cuda)
        lead_sec = max(config.cuda.lead_sec, _LEAD_FACTOR * self._launch_sec(machine))
        flush.last(min(lead_sec, config.cuda.lead_limit_sec))
        return take_single_samples(
            lambda samples: self._timer.time(machine, 1, samples, flush), config
        )

    def sample_model(
        self, machine: relax.VirtualMachine, config: MeasureConfig
    ) -> tuple[float, ...]:
        """Calls one after the other, nothing flushed and nothing hidden: each sample begins on an
        idle device, so where launching is slower than the kernels, that shows."""

        def time_calls(number: int) -> float:
            return self._timer.time(machine, number, 1, self.synchronize)[0]

        return take_samples(time_calls, config)

    def synchronize(self) -> None:
        self._driver.synchronize()

    def lost(self, error: Exception) -> DeviceLostError | None:
        try:
            self.synchronize()
        except CudaError as err:
            return DeviceLostError(f"broke the CUDA context: {err}", crashed=err.is_fatal)
        return None

    def clocks(self) -> Clocks | None:
        return self._management.clocks() if self._management is not None else None

    def release(self) -> bool:
        """Free what TVM keeps for the next machine. Workspaces of libraries go with the process."""
        tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")()
        return bool(self.device.available_global_memory >= _ENOUGH_MEMORY * self._free_bytes)

    def crowded(self) -> bool:
        return self._free_bytes < _ENOUGH_MEMORY * int(self.device.total_global_memory or 0)

    def _launch_sec(self, machine: relax.VirtualMachine) -> float:
        """What the processor takes to launch a call."""
        seconds = []
        for _ in range(_LAUNCH_PROBES):
            begin = time.perf_counter()
            machine.invoke_stateful("main")
            seconds.append(time.perf_counter() - begin)
            self.synchronize()
        return min(seconds)

    def _flush(self, config: CudaConfig) -> CacheFlush:
        if config.flush_factor not in self._flushes:
            size = int(config.flush_factor * int(self.device.l2_cache_size_bytes or 0))
            size = max(size, 1 << 20)
            buffer = tvm.runtime.empty((size // 4,), "int32", self.device)
            flush = CacheFlush(self._driver, int(buffer.data_ptr()), size, self._timer.stream)
            self._flushes[config.flush_factor] = (buffer, flush)
        return self._flushes[config.flush_factor][1]
