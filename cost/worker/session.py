"""How a worker process uses the device that it runs libraries on."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import CollageError
from collage.backends.toolchain.children.mapped_pages import forget_pages
from collage.cost.base import Clocks, CostStatus
from collage.cost.call_times import CallTime, time_calls
from collage.cost.config import MeasureConfig
from collage.cost.device import available_cores
from collage.cost.processes.staging import load_requirements
from collage.cost.worker.memory import give_back, load_for_a_while
from collage.cost.worker.sampling import take_samples

_FEW_CALLS = 20
"""That a sample consists of, of half a millisecond or more: TVM's evaluator, which loops outside of
Python, makes one call more than it times."""

_APART_SEC = 0.4
"""For the calls in which a whole model is taken apart,"""

_APART_CALLS = 20
"""of which there are so many at the most; one of a slow model is enough."""


class DeviceLostError(CollageError):
    """This process cannot use its device any longer.

    Parameters
    ----------
    message : str
        What the device says.
    crashed : bool
        Whether a program on the device did something fatal; otherwise the device was only left in
        a state that nothing else can be measured in.
    """

    def __init__(self, message: str, *, crashed: bool) -> None:
        super().__init__(message, value=crashed)
        self.crashed = crashed


class SessionLostError(DeviceLostError):
    """A session with another machine is over.

    Parameters
    ----------
    message : str
        Why.
    status : CostStatus
        What that says of the library that was run; ``UNKNOWN`` when it says nothing.
    """

    def __init__(self, message: str, status: CostStatus) -> None:
        super().__init__(message, crashed=status is CostStatus.CRASHED)
        self.status = status


class Session(ABC):
    """A process's use of one device. What is called has its inputs set and is called ``main``."""

    def __init__(self, device: tvm.runtime.Device) -> None:
        self.device = device

    def upload(self, arrays: Sequence[NDArray[np.generic]]) -> list[tvm.runtime.Tensor]:
        """Copies of arrays in the device's memory."""
        return [tvm.runtime.tensor(array, self.device) for array in arrays]

    def bring(self, library: Path) -> None:
        """Have a library and all that it needs where it is going to run.

        Raises
        ------
        MeasurementError
            When something is missing; names it.
        """
        load_requirements(library)

    def load(self, library: Path) -> relax.VirtualMachine:
        """The machine that runs a library, which was brought."""
        return relax.VirtualMachine(tvm.runtime.load_module(str(library)), self.device)

    def begin(self, config: MeasureConfig) -> None:  # noqa: B027 (others watch this process)
        """From now on a library's time and memory count."""

    def end(self) -> None:  # noqa: B027
        """They count no longer."""

    @abstractmethod
    def call(self, machine: relax.VirtualMachine) -> float:
        """Seconds that one call takes, until all of it is done."""

    @abstractmethod
    def settle(self, machine: relax.VirtualMachine) -> None:
        """After the first call, make those that do more than a later one."""

    @abstractmethod
    def sample(self, machine: relax.VirtualMachine, config: MeasureConfig) -> tuple[float, ...]:
        """Seconds per call of a candidate, as it would take inside a model.

        Parameters
        ----------
        machine : relax.VirtualMachine
            Its inputs are set, and it was called before.
        config : MeasureConfig
            How many samples, and how long.

        Returns
        -------
        tuple of float
            A value for each sample, in seconds.
        """

    @abstractmethod
    def sample_model(
        self, machine: relax.VirtualMachine, config: MeasureConfig
    ) -> tuple[float, ...]:
        """Seconds per call of a whole model, as its user sees it.

        Parameters
        ----------
        machine, config
            As :meth:`sample` takes them.

        Returns
        -------
        tuple of float
            A value for each sample, in seconds.
        """

    def take_apart(self, machine: relax.VirtualMachine) -> tuple[CallTime, ...]:
        """Seconds of each call inside a whole model, which cannot be timed as a whole afterwards.

        Parameters
        ----------
        machine : relax.VirtualMachine
            Its inputs are set, and it was called before.

        Returns
        -------
        tuple of CallTime
            In their order; none where they cannot be seen, as in a graph that a GPU has captured.
        """
        return ()

    def synchronize(self) -> None:  # noqa: B027 (nothing to do is a good answer)
        """Wait for the device; raises what went wrong there since."""

    def lost(self, error: Exception) -> DeviceLostError | None:
        """Whether the device can no longer be used."""
        return None

    def clocks(self) -> Clocks | None:
        """The device's clocks now, where they can be read."""
        return None

    def crowded(self) -> bool:
        """Whether others held most of the device's memory when this process began to use it."""
        return False

    def rest(self, library: Path) -> None:  # noqa: B027
        """A library that was called will wait for its turns: others need the memory."""

    def release(self) -> bool:
        """After a library was let go, free what it leaves; False when the process should end too,
        because only that frees the rest."""
        return True


class CpuSession(Session):
    """The processor that this process runs on.

    Kept to one core, this process cannot compute without having it: its own processor time is what
    calls take, and the time for which others had the core is not in it. With more cores that would
    count the work of all threads, and the waking wait of those that have none.
    """

    def __init__(self) -> None:
        super().__init__(tvm.cpu())
        self._on_one_core = available_cores() == 1
        self._clock = time.process_time if self._on_one_core else time.perf_counter

    def load(self, library: Path) -> relax.VirtualMachine:
        return relax.VirtualMachine(load_for_a_while(library), self.device)

    def rest(self, library: Path) -> None:
        """Forget constants that are packed; see the base class."""
        forget_pages(library.parent)

    def release(self) -> bool:
        """Give back what the library took, its file and packed weights too."""
        give_back()
        return True

    def call(self, machine: relax.VirtualMachine) -> float:
        begin = self._clock()
        machine.invoke_stateful("main")
        return self._clock() - begin

    def settle(self, machine: relax.VirtualMachine) -> None:
        """The first call has done it all."""

    def sample(self, machine: relax.VirtualMachine, config: MeasureConfig) -> tuple[float, ...]:
        """Seconds per call; see the class for what clock."""

        def time_calls(number: int) -> float:
            if number <= _FEW_CALLS:
                return self._call_often(machine, number)
            evaluator = machine.time_evaluator("invoke_stateful", self.device, number=number)
            return float(evaluator("main").results[0]) * number

        return take_samples(
            partial(self._call_often, machine) if self._on_one_core else time_calls, config
        )

    def sample_model(
        self, machine: relax.VirtualMachine, config: MeasureConfig
    ) -> tuple[float, ...]:
        """As of a candidate: a processor runs both alike."""
        return self.sample(machine, config)

    def take_apart(self, machine: relax.VirtualMachine) -> tuple[CallTime, ...]:
        """Each call by the same clock; see the base class."""
        repeat = max(1, min(_APART_CALLS, int(_APART_SEC / max(self.call(machine), 1e-9))))
        warmup = int(repeat > 1)
        return time_calls(
            *(machine, lambda: self.call(machine), self.device, repeat, warmup),
            clock=self._clock,
        )

    def _call_often(self, machine: relax.VirtualMachine, number: int) -> float:
        # TVM's evaluator knows the wall clock alone.
        invoke = machine.module["invoke_stateful"]
        begin = self._clock()
        for _ in range(number):
            invoke("main")
        return self._clock() - begin
