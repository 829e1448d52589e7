"""The measured cost model: answers from the log, or builds, checks and times."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.devices import DeviceKind
from collage.cost.base import Asking, Cost, CostModel, CostStatus, Overheads
from collage.cost.config import MeasureConfig
from collage.cost.contest import Exchange
from collage.cost.database import Database, JsonLinesDatabase
from collage.cost.database.record import (
    END_TO_END,
    PARTITION,
    TRANSITION,
    canonical_json,
)
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import Device, policy_for
from collage.cost.engines import LocalEngine
from collage.cost.measure.engine import Engine, Work
from collage.cost.measure.replay import (
    NO_TIME,
    MeasureStats,
    RecordLookup,
    partition_miss,
)
from collage.cost.measure.runner import RunResult
from collage.cost.models.misses_asked import MissesAsked
from collage.cost.models.overheads import overheads_from, probe_workloads
from collage.cost.models.site import Site
from collage.cost.models.whole_models import WholeModels
from collage.cost.progress import ProgressCallback, ignore
from collage.cost.reference import Sample
from collage.cost.workload.workload import Workload

__all__ = ["MeasureStats", "MeasuredCostModel"]


class MeasuredCostModel(CostModel):
    """Measures what the log does not know; use as a context manager, which ends the workers.

    What is measured on follows from the targets asked about: the workers' processors, or their GPUs
    for targets of kind ``cuda``. Workers start with the first miss, so a replay starts none.

    Parameters
    ----------
    context : BuildContext
        Cache and scratch folders, threads, compiler.
    database : Database, optional
        The log; by default one in memory.
    config : MeasureConfig, optional
        Repetitions, limits, tolerances.
    deadline : Deadline, optional
        No workload is measured after it: what is not in the log is then unknown, and what is under
        way is given up. It may be set anew at any time.
    replay_only : bool
        Never measure; a miss is an error, unless there is a deadline: then it is unknown, as it
        was when the log was written.
    progress : callable, optional
        Informed of each workload built and measured.
    engine : Engine, optional
        Who compiles and times; by default this machine, with all of its GPUs.
    device : Device, optional
        What a log that is replayed was measured on; by default what there is.
    parallel_builds : int, optional
        Builder processes; by default two for a CPU, and one per core but one for a GPU.
    plugins : sequence of str
        ``module:Class`` of backends that workers must register; those of the targets that are
        asked about are found without.

    Examples
    --------
    >>> context = BuildContext(Path("cache"), Path("work"), num_threads=1)
    >>> with MeasuredCostModel(context, JsonLinesDatabase(Path("log.jsonl"))) as model:
    ...     costs = model.estimate([], [])
    >>> costs, model.stats.measured
    ([], 0)
    """

    def __init__(
        self,
        context: BuildContext,
        database: Database | None = None,
        config: MeasureConfig | None = None,
        *,
        deadline: Deadline = NEVER,
        replay_only: bool = False,
        progress: ProgressCallback = ignore,
        engine: Engine | None = None,
        device: Device | None = None,
        parallel_builds: int | None = None,
        plugins: Sequence[str] = (),
    ) -> None:
        self._context = context
        self._config = config if config is not None else MeasureConfig()
        self.deadline = deadline
        self._replay_only = replay_only
        self._progress = progress
        self._engine = engine or LocalEngine()
        self._device = device
        self._parallel_builds = parallel_builds
        self._plugins = list(plugins)
        self._sites: dict[DeviceKind, Site] = {}
        self.stats = MeasureStats()
        log = JsonLinesDatabase() if database is None else database
        self._lookup = RecordLookup(log, self.stats)

    def __enter__(self) -> MeasuredCostModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes. A later question starts new ones."""
        for site in self._sites.values():
            site.measurer.close()

    @property
    def database(self) -> Database:
        """The log in use."""
        return self._lookup.database

    @property
    def num_threads(self) -> int:
        """Threads of what is built and timed; 0 for all cores."""
        return self._context.num_threads

    @property
    def ieee_denormals(self) -> bool:
        """Whether what is built and timed computes with denormal numbers."""
        return self._context.ieee_denormals

    def device(self, targets: Sequence[BackendTarget]) -> Device:
        """What measurements for these targets are made on.

        Raises
        ------
        TargetError
            When the workers have no such device.
        MeasurementError
            When they cannot be reached.
        """
        return self._site(targets).device

    def builds_beside(self, targets: Sequence[BackendTarget]) -> bool:
        """Whether compiling on this machine leaves alone what is timed for these targets.

        Raises
        ------
        TargetError
            When the workers have no such device.
        """
        return self._site(targets).measurer.builds_beside

    def surroundings(self, targets: Sequence[BackendTarget]) -> str:
        """All that a time depends on besides what is timed, as JSON: device, driver, versions,
        threads, configuration; nothing that is this process's or this folder's own.

        Raises
        ------
        TargetError
            When this machine has no such device.
        """
        key = self._site(targets).keys.make(END_TO_END, "", "", targets)
        return canonical_json(dataclasses.asdict(key))

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        """The cost of each workload on the target at the same position.

        Equal workloads are measured once. Each measurement is in the log as soon as it is made.

        Raises
        ------
        TargetError
            When the workers have no device of the targets' kind.
        ReplayMissError
            With ``replay_only``, naming the first workload that the log does not hold.
        LogError
            When the log can no longer be written.
        MeasurementError
            When no worker process can be started.
        """
        return self._answer(PARTITION, workloads, targets)

    @property
    def times_together(self) -> bool:
        return True

    def together(
        self,
        workloads: Sequence[Workload],
        targets: Sequence[BackendTarget],
        exchanges: Sequence[Exchange],
        patience_sec: float,
    ) -> list[Cost] | None:
        """Costs in the same rounds, from the log or measured; see the base class.

        Parameters
        ----------
        workloads, targets, exchanges, patience_sec
            As it takes them.

        Raises
        ------
        LogError, MeasurementError
            As :meth:`estimate`.
        """
        site = self._site(targets)
        return site.together.costs(workloads, targets, exchanges, patience_sec)

    def recorded(self, workload: Workload, target: BackendTarget) -> Cost | None:
        """The cost that the log holds, if it holds one."""
        site = self._site([target])
        (cost,) = self._lookup.costs([site.keys.partition(workload, target)])
        return None if cost is NO_TIME else cost

    def overheads(self, target: BackendTarget) -> Overheads:
        """What the virtual machine adds to every call and every partition, measured once; nothing
        when there was no time.

        Raises
        ------
        MeasurementError
            When even the smallest modules cannot be measured.
        """
        workloads = probe_workloads(target.backend)
        costs = self._answer(TRANSITION, workloads, [target] * len(workloads))
        if any(cost.status is CostStatus.UNKNOWN for cost in costs):
            return Overheads(0.0, 0.0)  # There was no time, and there is none for what they help.
        return overheads_from(costs)

    def stream(self, targets: Sequence[BackendTarget], ask: Asking) -> None:
        """Measure for as long as somebody asks, where several devices time.

        Parameters
        ----------
        targets : sequence of BackendTarget
            All that may be asked about, of one kind of device.
        ask : callable
            Asked as soon as a builder or a device would be idle.

        Raises
        ------
        LogError, MeasurementError
            As :meth:`estimate`.
        """
        site = self._site(targets)
        if self._replay_only or site.measurer.at_once == 1:
            return
        more = MissesAsked(site.keys, self._lookup, ask)
        first = more(site.measurer.at_once)
        if first is not None and first.questions:
            site.measurer.measure(first.questions, more, targets)

    def at_once(self, target: BackendTarget) -> int:
        """Workloads with which no device and, within reason, no builder is idle."""
        return self._site([target]).measurer.at_once

    def whole_models(self, targets: Sequence[BackendTarget]) -> WholeModels:
        """Whole models for these targets: compiled, timed against each other, found in the log.

        Raises
        ------
        TargetError
            When the workers have no such device.
        """
        return self._site(targets).whole

    def run(
        self, libraries: Sequence[Path], samples: Sequence[Sample], targets: Sequence[BackendTarget]
    ) -> list[RunResult]:
        """Whether libraries compute what they must, one after the other; nothing is recorded.

        Parameters
        ----------
        libraries : sequence of Path
            Linked.
        samples : sequence of Sample
            What each is run on, and what it must give.
        targets : sequence of BackendTarget
            What they were compiled for.

        Returns
        -------
        list of RunResult
            In the order of the libraries.

        Raises
        ------
        OutOfTimeError
            When the time for measuring is up.
        MeasurementError
            When no worker process can be started.
        """
        return self._site(targets).measurer.run(libraries, samples)

    def condemn(self, workload: Workload, target: BackendTarget, reason: str) -> None:
        """Record that a workload is computed wrongly, as was found out in a whole model.

        From then on this is its cost, in the log too.

        Parameters
        ----------
        workload : Workload
            What was computed.
        target : BackendTarget
            What computed it.
        reason : str
            How wrong it was, and where.
        """
        site = self._site([target])
        key = site.keys.partition(workload, target)
        result = RunResult(Cost(CostStatus.WRONG_RESULT, reason=reason))
        site.measurer.recorder.keep_workload(key, result, workload.describe(), target.name, 0.0)

    def _answer(
        self, kind: str, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        site = self._site(targets)
        questions = list(zip(workloads, targets, strict=True))
        keys = [site.keys.partition(workload, target, kind) for workload, target in questions]
        misses = self._lookup.misses(keys, questions)
        if misses and self._replay_only and not self.deadline.is_limited:
            raise partition_miss(next(iter(misses.values())), len(misses))
        if misses and not self._replay_only:
            site.measurer.measure(misses)
        return self._lookup.costs(keys)

    def _site(self, targets: Sequence[BackendTarget]) -> Site:
        policy = policy_for(targets)
        if policy.kind not in self._sites:
            given = self._device
            work = Work(
                *(policy, self._context, self._config, self._parallel_builds),
                Deadline(lambda: self.deadline.end),
                given if given is not None and given.kind == policy.kind.name else None,
            )
            self._sites[policy.kind] = Site.opened(
                *(self._engine, work, self._lookup, self.stats, self._progress, self._plugins),
                replay_only=self._replay_only,
            )
        return self._sites[policy.kind]
