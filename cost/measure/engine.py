"""The contract of an engine: who compiles candidates, and who times them on which devices.

An :class:`Engine` is what a user names; opened for some :class:`Work`, it gives :class:`Workers`: a
:class:`~collage.cost.measure.builder.Builder`, and the :class:`Place` objects that pull what was
built. How they are reached (in this process, in child processes, over a network) is the engine's
own affair. :class:`collage.testing.EngineContract` is a suite for any of them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import OutOfTimeError
from collage.cost.config import MeasureConfig
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import Device, DevicePolicy
from collage.cost.measure.builder import Builder
from collage.cost.measure.runner import Runner
from collage.cost.measure.whole_models.model_timer import ModelTimer
from collage.cost.progress import ProgressCallback

_POLL_SEC = 0.1

Hold = Callable[[Callable[[], None], Callable[[], bool]], AbstractContextManager[None]]
"""Gives a context in which nobody else measures on a device. It is given whom to tell when somebody
else has it, and whom to ask whether to give up, which raises an ``OutOfTimeError``."""


def _no_others(_: Callable[[], None], __: Callable[[], bool]) -> AbstractContextManager[None]:
    """The :data:`Hold` of a device that has its own way to keep others out."""
    return nullcontext()


def in_turns() -> Hold:
    """A :data:`Hold` of what only threads of this process use.

    Examples
    --------
    >>> hold = in_turns()
    >>> with hold(lambda: None, lambda: False):
    ...     with hold(lambda: None, lambda: True):
    ...         pass
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.OutOfTimeError: the time is spent
    """
    turn = threading.Lock()

    @contextmanager
    def hold(_: Callable[[], None], given_up: Callable[[], bool]) -> Iterator[None]:
        while not turn.acquire(timeout=_POLL_SEC):
            if given_up():
                raise OutOfTimeError("the time is spent")
        try:
            yield
        finally:
            turn.release()

    return hold


@dataclass(frozen=True)
class Work:
    """What workers must know, whatever they are asked.

    Attributes
    ----------
    policy : DevicePolicy
        Of the kind of device that is measured on.
    context : BuildContext
        Cache and scratch folders of this machine, threads, compiler.
    config : MeasureConfig
        Repetitions, limits, tolerances.
    parallel_builds : int or None
        Builder processes of one machine; None for as many as suit it.
    deadline : Deadline
        What is under way then is given up.
    device : Device or None
        What must be measured on; None for what there is.
    comparable : float
        How far apart the times of two places may lie, as a share, of the reference set. It says who
        takes part, not what is measured: it belongs to no record's key.
    say : callable
        Told, in one line, what keeps workers from working, and that it is over.
    """

    policy: DevicePolicy
    context: BuildContext
    config: MeasureConfig
    parallel_builds: int | None = None
    deadline: Deadline = NEVER
    device: Device | None = None
    comparable: float = 0.03
    say: Callable[[str], None] = field(default=lambda text: None, compare=False)

    def on(self, device: Device) -> Work:
        """The same, for a device of this machine: whoever compiles need not ask for it.

        Parameters
        ----------
        device : Device
            That is measured on.

        Returns
        -------
        Work
            Whose context knows it.
        """
        return replace(self, context=replace(self.context, gpu=self.policy.gpu(device)))


@dataclass(frozen=True)
class Place:
    """One device that candidates are timed on, one at a time.

    Attributes
    ----------
    name : str
        For messages and the report, such as ``cuda:1`` or ``10.0.0.3 cuda:0``.
    runner : Runner
        Times there. It is used by one thread at a time, always the same but for its ``close``.
    hold : callable
        Keeps others from the device.
    """

    name: str
    runner: Runner
    hold: Hold = field(default=_no_others, compare=False)


@dataclass(frozen=True)
class WorkerInfo:
    """What is known of one device that could be measured on, or of a machine that has none.

    Attributes
    ----------
    name : str
        As a :class:`Place` that times there is called.
    address : str
        Of the machine; ``localhost`` for this one.
    device : Device or None
        Its fingerprint, where it has one.
    versions : mapping of str to str
        What is installed there, see :func:`collage.cost.measure.versions.versions_here`; empty
        where nobody could ask.
    load : float or None
        Processes that run there and want to, for each core, over the last minute.
    builds : int
        Candidates that are compiled there at the same time.
    reason : str
        Why it cannot be used, in one line; empty when it can.

    Examples
    --------
    >>> WorkerInfo("node-3 cuda:0", "10.0.0.3", reason="collage is not installed there").usable
    False
    """

    name: str
    address: str
    device: Device | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    load: float | None = None
    builds: int = 0
    reason: str = ""

    @property
    def usable(self) -> bool:
        """Whether candidates can be timed there."""
        return not self.reason


class Workers(ABC):
    """Those who do some work; use as a context manager, which ends what they started.

    Attributes
    ----------
    device : Device
        What all places are: times of others would not compare.
    places : sequence of Place
        At least one. Whole models are timed on the first.
    builds_beside : bool
        Whether what builds here leaves alone what is timed; otherwise the first place is held for
        building, too.
    tunes : bool
        Whether backends may choose kernels on a device of this machine, beside the builders.
    unused : mapping of str to str
        Devices that are there and take no part, and why.
    """

    device: Device
    places: Sequence[Place]
    builds_beside: bool
    tunes: bool = False
    unused: Mapping[str, str] = MappingProxyType({})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def parallel_builds(self) -> int:
        """Workloads that are built at the same time."""

    @abstractmethod
    def builder(self, plugins: Sequence[str]) -> Builder:
        """Who compiles candidates.

        Parameters
        ----------
        plugins : sequence of str
            For backends registered at run time, see :mod:`collage.cost.processes.plugins`.
        """

    @abstractmethod
    def timer(self, progress: ProgressCallback) -> ModelTimer:
        """Who times whole models."""

    def close(self) -> None:
        """End what the places started; what they are asked later starts anew.

        Builders are closed by whoever asked for them.
        """
        for place in self.places:
            place.runner.close()


class Engine(ABC):
    """Names workers without starting any."""

    @abstractmethod
    def open(self, work: Work) -> Workers:
        """Find the workers.

        Raises
        ------
        TargetError
            When there is no device of that kind.
        MeasurementError
            When nobody can be reached.
        """

    @abstractmethod
    def inspect(self, policy: DevicePolicy) -> list[WorkerInfo]:
        """All devices that could be measured on, with what speaks against it; starts nothing that
        lasts.

        Raises
        ------
        MeasurementError
            When nobody can be reached.
        """
