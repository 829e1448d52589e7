"""Workers that only wait: what they build and time costs what a table says, after real delays.

For what a search does with many workers: nothing is compiled or run, and everything else (the
search, the log, the threads, the files that go from builders to places) is what it always is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract import BackendTarget
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import Device, DevicePolicy
from collage.cost.measure.builder import Builder, BuildJob, BuildResult
from collage.cost.measure.engine import Engine, Place, Work, WorkerInfo, Workers
from collage.cost.measure.runner import RunJob, Runner, RunResult
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, ModelTimer
from collage.cost.processes.protocol import Message, decode, encode
from collage.cost.progress import ProgressCallback
from collage.cost.workload.workload import Workload

_POLL_SEC = 0.05
_NAME = "simulated.json"


@dataclass(frozen=True)
class Delays:
    """How long workers are busy with a workload.

    Examples
    --------
    >>> Delays(build_sec=2.0, run_sec=0.5).run_sec
    0.5
    """

    build_sec: float
    run_sec: float


DelaysOf = Callable[[Workload, BackendTarget], Delays]
"""How long workers are busy with a workload for a target."""


class _Simulated(Message, frozen=True):
    """What a build leaves for whoever times it."""

    seconds: float
    reason: str
    run_sec: float


class SimulatedEngine(Engine):
    """As many devices as one likes, none of which is there.

    Parameters
    ----------
    costs : CostModel
        What things cost, for example a :class:`~collage.cost.models.table.TableCostModel`.
    delays : callable
        How long workers are busy with a workload.
    device : Device
        What all places are.
    places : int
        Devices.
    builders : int
        Workloads that are built at the same time.
    waits_in : Executor, optional
        Where a place waits, for one that is reached through a network: given a number of seconds,
        it must come back after them.

    Examples
    --------
    >>> from collage.backends.contract import BuildContext
    >>> from collage.cost import MeasuredCostModel, TableCostModel
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> from tvm.target import Target
    >>> relu = Workload.from_module(graph([(8, 8)], lambda _, x: op.nn.relu(x)))
    >>> engine = SimulatedEngine(
    ...     TableCostModel({("relu 8x8", "tvm"): 1e-6}),
    ...     lambda workload, target: Delays(build_sec=0.02, run_sec=0.01),
    ...     Device("cpu", "a simulated one", 4, "0123"),
    ...     places=8,
    ...     builders=8,
    ... )
    >>> with MeasuredCostModel(BuildContext(Path("cache"), Path("work")), engine=engine) as model:
    ...     model.estimate([relu], [BackendTarget.of("tvm", Target("llvm"))])[0].median_sec
    1e-06
    """

    def __init__(
        self,
        costs: CostModel,
        delays: DelaysOf,
        device: Device,
        places: int,
        builders: int,
        waits_in: Executor | None = None,
    ) -> None:
        self._costs = costs
        self._delays = delays
        self._device = device
        self._places = places
        self._builders = builders
        self._waits_in = waits_in

    def open(self, work: Work) -> Workers:
        places = [
            Place(f"simulated:{number}", _SimulatedRunner(work.deadline, self._waits_in))
            for number in range(self._places)
        ]
        return _SimulatedWorkers(
            self._device, places, self._costs, self._delays, self._builders, work.deadline
        )

    def inspect(self, policy: DevicePolicy) -> list[WorkerInfo]:
        return [
            WorkerInfo(f"simulated:{number}", "localhost", self._device, builds=self._builders)
            for number in range(self._places)
        ]


class _SimulatedWorkers(Workers):
    builds_beside = True

    def __init__(
        self,
        device: Device,
        places: Sequence[Place],
        costs: CostModel,
        delays: DelaysOf,
        builders: int,
        deadline: Deadline,
    ) -> None:
        self.device, self.places = device, places
        self._costs, self._delays = costs, delays
        self._builders, self._deadline = builders, deadline

    @property
    def parallel_builds(self) -> int:
        return self._builders

    def builder(self, plugins: Sequence[str]) -> Builder:
        return _SimulatedBuilder(self._costs, self._delays, self._builders, self._deadline)

    def timer(self, progress: ProgressCallback) -> ModelTimer:
        return _SimulatedTimer()


class _SimulatedBuilder(Builder):
    def __init__(
        self, costs: CostModel, delays: DelaysOf, parallel: int, deadline: Deadline
    ) -> None:
        self._costs, self._delays, self._deadline = costs, delays, deadline
        self._threads = ThreadPoolExecutor(parallel, "simulated-builder")

    def build(
        self,
        jobs: Sequence[BuildJob],
        done: Callable[[int, BuildResult], None] | None = None,
    ) -> list[BuildResult]:
        results: dict[int, BuildResult] = {}
        running: dict[Future[BuildResult], int] = {
            self._threads.submit(self._build, job, *self._plan(job)): index
            for index, job in enumerate(jobs)
        }
        try:
            while running:
                self._deadline.check()
                ended, _ = wait(running, _POLL_SEC, FIRST_COMPLETED)
                for future in ended:
                    index = running.pop(future)
                    results[index] = future.result()
                    if done is not None:
                        done(index, results[index])
        finally:
            for future in running:
                future.cancel()
        return [results[index] for index in range(len(jobs))]

    def _plan(self, job: BuildJob) -> tuple[_Simulated, float]:
        (cost,) = self._costs.estimate([job.workload], [job.target])
        delays = self._delays(job.workload, job.target)
        return _Simulated(cost.median_sec, cost.reason, delays.run_sec), delays.build_sec

    def _build(self, job: BuildJob, simulated: _Simulated, build_sec: float) -> BuildResult:
        _wait(build_sec, self._deadline)
        job.folder.mkdir(parents=True)
        (job.folder / _NAME).write_bytes(encode(simulated))
        return BuildResult(CostStatus.VALID, "", job.folder / _NAME, build_sec)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)


class _SimulatedRunner(Runner):
    def __init__(self, deadline: Deadline, waits_in: Executor | None) -> None:
        self._deadline = deadline
        self._waits_in = waits_in

    def run(self, job: RunJob) -> RunResult:
        simulated: _Simulated = decode((job.sample / _NAME).read_bytes(), _Simulated)
        if self._waits_in is None:
            _wait(simulated.run_sec, self._deadline)
        else:
            self._waits_in.submit(time.sleep, simulated.run_sec).result()
        if simulated.reason:
            return RunResult(Cost(CostStatus.RUN_FAILED, reason=simulated.reason))
        return RunResult(Cost.of_samples([simulated.seconds]), run_sec=simulated.run_sec)

    def close(self) -> None:
        pass


class _SimulatedTimer(ModelTimer):
    """All whole models take a millisecond: no table says what they cost."""

    def measure(
        self,
        question: EndToEndQuestion,
        libraries: Sequence[Path],
        deadline: Deadline = NEVER,
    ) -> list[RunResult]:
        return [RunResult(Cost.of_samples([1e-3])) for _ in question.models]


def _wait(seconds: float, deadline: Deadline) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        deadline.check()
        time.sleep(min(left, _POLL_SEC))
