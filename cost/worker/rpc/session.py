"""A worker process's use of a device on another machine, which has TVM's runtime alone."""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract.errors import MeasurementError
from collage.backends.devices import device_named
from collage.backends.toolchain import openmp_pool
from collage.cost.config import MeasureConfig
from collage.cost.device import policy_of
from collage.cost.processes.messages import Connect, Detected
from collage.cost.processes.staging import requirements_of
from collage.cost.worker.rpc.facts import detect
from collage.cost.worker.rpc.link import Link
from collage.cost.worker.sampling import take_samples, take_single_samples
from collage.cost.worker.session import DeviceLostError, Session

_LONG_SEC = 0.1
"""A call that takes longer is timed from here: what the network adds is little then."""

_CAPTURING_CALLS = 2
"""Calls after the first in which the virtual machine may still capture CUDA graphs."""


class RpcSession(Session):
    """The first device of a kind on the machine of a TVM RPC server.

    Everything is timed there, by TVM's own evaluator; what comes back is seconds and outputs.

    Parameters
    ----------
    request : Connect
        Which server.

    Raises
    ------
    MeasurementError
        When there is no session to be had, or no such device.
    """

    def __init__(self, request: Connect) -> None:
        self._link = Link(request)
        self._request = request
        self._policy = policy_of(device_named(request.kind))
        self._numbers = itertools.count()
        self._brought: dict[Path, str] = {}
        self._buffer: tvm.runtime.Tensor | None = None
        super().__init__(self._link.device(request.kind))
        if not self.device.exist:
            raise MeasurementError(
                f"{request.host}:{request.port} has no {request.kind} device", value=request.kind
            )

    def bring(self, library: Path) -> None:
        if not library.is_file():
            raise MeasurementError(f"there is no library '{library}'", value=library)
        required, runtimes = requirements_of(library)
        if runtimes:
            raise MeasurementError(
                f"{', '.join(runtimes)} need {', '.join(runtimes.values())}, which a machine with "
                "TVM's runtime alone does not have",
                value=dict(runtimes),
            )
        for requirement in required:
            self._link.load(requirement.soname)
        folder = library.parent / "lib"
        shipped = sorted(folder.iterdir()) if folder.is_dir() else []
        # The others call the pool of threads without being linked with it.
        for path in sorted(shipped, key=lambda path: path.name != openmp_pool.SONAME):
            self._link.provide(path)
        # The loader gives a library that it has already to whoever asks for one of that name.
        self._brought[library] = f"{next(self._numbers)}-{library.name}"
        self._link.upload(library, self._brought[library])

    def load(self, library: Path) -> relax.VirtualMachine:
        name = self._brought.pop(library)
        with self._link.running():
            module = self._link.rpc.load_module(name)
            machine = relax.VirtualMachine(module, [self.device])
        self._link.rpc.remove(name)
        return machine

    def begin(self, config: MeasureConfig) -> None:
        self._link.begin(self._policy.run_timeout_sec(config), config.memory_limit_bytes)

    def end(self) -> None:
        self._link.end()

    def detect(self) -> Detected:
        return detect(self._link, self.device, self._request)

    def call(self, machine: relax.VirtualMachine) -> float:
        """Seconds of wall time that one call takes, with the way there and back."""
        with self._link.running():
            begin = time.perf_counter()
            machine.invoke_stateful("main")
            self.synchronize()
            return time.perf_counter() - begin

    def settle(self, machine: relax.VirtualMachine) -> None:
        for _ in range(_CAPTURING_CALLS if self._policy.has_context else 0):
            self.call(machine)

    def sample(self, machine: relax.VirtualMachine, config: MeasureConfig) -> tuple[float, ...]:
        """Seconds per call by the clock of that machine, by the same rules as on this one.

        On a GPU the second-level cache is flushed before each call, and what flushes it hides the
        launch; TVM's own evaluator, which hides nothing, times where the driver is not NVIDIA's.
        """
        if not self._policy.has_context:
            return self.sample_model(machine, config)
        elapsed = self.call(machine)
        if elapsed > config.slow_call_sec:
            return (elapsed,)
        size = int(config.cuda.flush_factor * int(self.device.l2_cache_size_bytes or 0))
        size = max(size, 1 << 20)
        if self._buffer is None or self._buffer.shape[0] != size // 4:
            self._buffer = tvm.runtime.empty((size // 4,), "int32", self.device)
        buffer, cuda = self._buffer, config.cuda

        def time_each(number: int) -> tuple[float, ...]:
            with self._link.running():
                seconds = self._link.time_on_gpu(
                    machine.module, buffer, number, cuda.lead_sec, cuda.lead_limit_sec
                )
            if seconds:
                return self._checked(seconds, number)
            return self._evaluate(machine, 1, number, size)

        return take_single_samples(time_each, config)

    def sample_model(
        self, machine: relax.VirtualMachine, config: MeasureConfig
    ) -> tuple[float, ...]:
        """Seconds per call, calls coming one after the other."""

        def time_calls(number: int) -> float:
            if number == 1 and (elapsed := self.call(machine)) > _LONG_SEC:
                # TVM's evaluator makes one call more than it times, too dear for a slow one.
                return elapsed
            return self._evaluate(machine, number, 1)[0] * number

        return take_samples(time_calls, config)

    def synchronize(self) -> None:
        if self._policy.has_context:
            self.device.sync()

    def lost(self, error: Exception) -> DeviceLostError | None:
        return self._link.lost(error)

    def release(self) -> bool:
        """Free what TVM keeps on a GPU for the next machine."""
        if self._policy.has_context:
            self._link.rpc.get_function("vm.builtin.memory_manager.clear")()
        return True

    def _evaluate(
        self, machine: relax.VirtualMachine, number: int, repeat: int, flush_bytes: int = 0
    ) -> tuple[float, ...]:
        evaluator = machine.module.time_evaluator(
            "invoke_stateful", self.device, number, repeat, cache_flush_bytes=flush_bytes
        )
        with self._link.running():
            seconds = tuple(map(float, evaluator("main").results))
        return self._checked(seconds, repeat)

    def _checked(self, seconds: tuple[float, ...], wanted: int) -> tuple[float, ...]:
        if len(seconds) != wanted or not all(0.0 <= sec < math.inf for sec in seconds):
            raise self._link.failed(f"{wanted} times were asked for, not {seconds[:9]}")
        return seconds
