"""This machine: child processes compile, and time on its processor or on all of its GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType

from collage.backends.contract.errors import TargetError, WorkersError
from collage.backends.devices import DeviceKind
from collage.backends.storage import exclusive
from collage.cost.device import Device, DevicePolicy, LocalDevice, available_cores
from collage.cost.engines.named import WorkersUrl
from collage.cost.measure.builder import Builder
from collage.cost.measure.engine import Engine, Hold, Place, Work, WorkerInfo, Workers
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.runner import Runner
from collage.cost.measure.versions import versions_here
from collage.cost.measure.whole_models.end_to_end import EndToEndTimer
from collage.cost.measure.whole_models.model_timer import ModelTimer
from collage.cost.progress import ProgressCallback


class LocalEngine(Engine):
    """This machine, with every device of the kind that is like the first one.

    Parameters
    ----------
    runner : Runner, optional
        Times in place of this machine's devices.
    device : Device, optional
        What ``runner`` times on.

    Examples
    --------
    >>> from pathlib import Path
    >>> from collage.backends.contract import BuildContext
    >>> from collage.cost import MeasureConfig
    >>> from collage.cost.device import CPU_POLICY
    >>> context = BuildContext(Path("cache"), Path("work"))
    >>> with LocalEngine().open(Work(CPU_POLICY, context, MeasureConfig())) as workers:
    ...     [place.name for place in workers.places]
    ['cpu']
    """

    def __init__(self, runner: Runner | None = None, device: Device | None = None) -> None:
        self._runner = runner
        self._device = device

    @classmethod
    def from_url(cls, url: WorkersUrl) -> LocalEngine:
        """This machine, as it is named on the command line.

        Raises
        ------
        WorkersError
            When it has an address or options.
        """
        url.only()
        if url.host or url.port is not None:
            raise WorkersError(
                f"workers '{url.text}': this machine has no address; write local", value=url.text
            )
        return cls()

    def open(self, work: Work) -> Workers:
        device = self._device or work.device
        if self._runner is None or (device is not None and device.kind != work.policy.kind.name):
            found = _devices(work)
            device = work.device or found[0].device
            alike = [one for one in found if one.device == found[0].device]
        else:
            device = device or work.policy.detect()
            found = alike = [LocalDevice(work.policy.kind.name, device)]
        places = [
            Place(
                one.name,
                self._runner or _runner_for(work, one),
                _hold(work.policy.kind, one.index),
            )
            for one in alike
        ]
        unlike = {one.name: _unlike(found[0]) for one in found if one not in alike}
        return _LocalWorkers(work.on(device), device, places, alike[0], unlike)

    def inspect(self, policy: DevicePolicy) -> list[WorkerInfo]:
        return inspect_here(policy)


class _LocalWorkers(Workers):
    """This machine's.

    Parameters
    ----------
    work : Work
        What they are for.
    device : Device
        What the places are.
    places : sequence of Place
        Where candidates are timed.
    first : LocalDevice
        Where whole models are.
    unused : mapping of str to str, optional
        Devices of this machine that take no part, and why.
    """

    def __init__(
        self,
        work: Work,
        device: Device,
        places: Sequence[Place],
        first: LocalDevice,
        unused: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.device = device
        self.places = tuple(places)
        self.builds_beside = self.tunes = work.policy.kind.compiles_beside
        self.unused = unused
        self._work = work
        self._first = first

    @property
    def parallel_builds(self) -> int:
        return self._work.parallel_builds or self._work.policy.builders()

    def builder(self, plugins: Sequence[str]) -> Builder:
        work = self._work
        return LocalBuilder(
            work.context, work.config, plugins, self.parallel_builds, work.policy, work.deadline
        )

    def timer(self, progress: ProgressCallback) -> ModelTimer:
        work, environment = self._work, self._first.environment
        return EndToEndTimer(work.config, work.context.work_dir, progress, work.policy, environment)


def _unlike(first: LocalDevice) -> str:
    return f"it is not like {first.name}"


def _devices(work: Work) -> list[LocalDevice]:
    if work.device is not None and not work.policy.kind.is_here():
        # A log is replayed, and nothing is going to be timed.
        return [LocalDevice(work.policy.kind.name, work.device)]
    return work.policy.all_here()


def _runner_for(work: Work, one: LocalDevice) -> Runner:
    return LocalRunner(
        work.config,
        policy=work.policy,
        environment=one.environment,
        deadline=work.deadline,
        device=one,
    )


def _hold(kind: DeviceKind, index: int) -> Hold:
    def hold(
        waiting: Callable[[], None], given_up: Callable[[], bool]
    ) -> AbstractContextManager[None]:
        return exclusive(kind, waiting, given_up, index=index)

    return hold


def inspect_here(policy: DevicePolicy, address: str = "localhost") -> list[WorkerInfo]:
    """The devices of this machine; those that are not like the first one are not used.

    Parameters
    ----------
    policy : DevicePolicy
        Of the kind of device.
    address : str
        What this machine is called by those who ask.

    Returns
    -------
    list of WorkerInfo
        One for each device; where none can be used a single entry that says why.

    Examples
    --------
    >>> from collage.cost.device import CPU_POLICY
    >>> [(info.name, info.usable) for info in inspect_here(CPU_POLICY)]
    [('cpu', True)]
    """
    versions, load = versions_here(policy), os.getloadavg()[0] / available_cores()
    try:
        found = policy.all_here()
    except TargetError as err:
        return [
            WorkerInfo(policy.kind.name, address, None, versions, load, policy.builders(), str(err))
        ]
    return [
        WorkerInfo(
            *(one.name, address, one.device, versions, load, policy.builders()),
            "" if one.device == found[0].device else _unlike(found[0]),
        )
        for one in found
    ]
