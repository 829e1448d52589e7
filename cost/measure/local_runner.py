"""Times libraries on this machine's CPU or GPU, in a warm child process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from collage.backends.contract.errors import MeasurementError
from collage.cost.base import Cost, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.contest import ContestRule
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import CPU_POLICY, DevicePolicy, LocalDevice
from collage.cost.device.load import LoadMeter
from collage.cost.measure.interleaved.local_rounds import LocalRounds
from collage.cost.measure.runner import (
    ExclusiveDevice,
    PlayedTogether,
    RunJob,
    Runner,
    RunResult,
)
from collage.cost.processes.crowding import FULL, Crowding, says_full
from collage.cost.processes.failure import WorkerFailure
from collage.cost.processes.kills import Kills
from collage.cost.processes.messages import Done, Failure, Judge, Measure, Measured, Prepare, Run
from collage.cost.processes.worker_process import WorkerProcess

_LEAVES_ERRORS = (CostStatus.RUN_FAILED, CostStatus.OUT_OF_MEMORY)

_ROOM_SEC = 1.0
"""Until a device that others have filled is tried again."""

_RETIRE_AFTER = 200
"""Runs after which the worker is replaced: libraries leave threads and memory behind."""

_MOST_GROWN = 256 << 20
"""Bytes that it may keep beside files; another one takes a tenth of a second, unless it makes a
context on a device first: such a one may keep half of what a candidate may take."""


class LocalRunner(Runner):
    """A runner on this machine; use as a context manager.

    Parameters
    ----------
    config : MeasureConfig
        Repetitions, limits and tolerances.
    fresh_process : bool
        Start a new process for every run. Right for whole models, whose thread pools would
        otherwise still spin when the next one is timed; too slow for thousands of candidates.
    policy : DevicePolicy, optional
        Of the device.
    environment : mapping of str to str, optional
        Of the processes that run: which of several devices they are to see.
    deadline : Deadline, optional
        When it comes, what is being timed is given up with an ``OutOfTimeError``.
    device : LocalDevice, optional
        What it times on, where that is known.

    Examples
    --------
    >>> from pathlib import Path
    >>> with LocalRunner(MeasureConfig()) as runner:
    ...     result = runner.run(RunJob.in_folder(Path("nothing-was-built-here")))
    >>> result.cost.status
    <CostStatus.RUN_FAILED: 'run_failed'>
    """

    def __init__(
        self,
        config: MeasureConfig,
        *,
        fresh_process: bool = False,
        policy: DevicePolicy = CPU_POLICY,
        environment: Mapping[str, str] | None = None,
        deadline: Deadline = NEVER,
        device: LocalDevice | None = None,
    ) -> None:
        self._device = device
        self._config = config
        self._policy = policy
        self._fresh_process = fresh_process
        self._environment = environment
        self._deadline = deadline
        self._worker: WorkerProcess | None = None
        self._initial_bytes = 0
        self._waited_sec = 0.0
        self._others = 0.0

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: RunJob) -> RunResult:
        return self._run(job, nullcontext)

    def run_sharing(self, job: RunJob, exclusive: ExclusiveDevice) -> RunResult:
        """See :meth:`Runner.run_sharing`; holds the device only from the first call to the last one
        that is timed, unless it is one on which everything else runs too.

        Parameters
        ----------
        job : RunJob
            What to check and time.
        exclusive : callable
            Gives the context in which to time it.
        """
        if self._policy.kind.compiles_beside:
            return self._run(job, exclusive)
        return super().run_sharing(job, exclusive)

    def _run(self, job: RunJob, exclusive: ExclusiveDevice) -> RunResult:
        begin, self._waited_sec = time.perf_counter(), 0.0
        kills, crowding = Kills(), Crowding(1)
        while True:
            try:
                worker = self._ready_worker()
            except MeasurementError as err:
                if says_full(str(err)) and crowding.is_asked_again(0, str(err), running=0):
                    time.sleep(_ROOM_SEC)
                    continue
                raise
            is_fresh = worker.requests == 0
            try:
                result = self._ask(worker, job, exclusive)
            except WorkerFailure as err:
                if kills.is_asked_again(err.status):
                    continue
                status, reason = kills.verdict(f"the candidate {err.reason}")
                result = RunResult(Cost(status, reason=reason))
            reason = result.cost.reason
            if reason.startswith(FULL) and crowding.is_asked_again(0, reason, running=0):
                self.close()
                time.sleep(_ROOM_SEC)
                continue
            # An earlier candidate may have corrupted the process; only a fresh one can accuse.
            if is_fresh or result.cost.status is not CostStatus.CRASHED:
                break
        if self._fresh_process:
            self.close()
        self._retire()
        elapsed = time.perf_counter() - begin - self._waited_sec
        return replace(result, run_sec=elapsed)

    def play(
        self, jobs: Sequence[RunJob], rule: ContestRule, seed: str, exclusive: ExclusiveDevice
    ) -> PlayedTogether:
        """See :meth:`Runner.play`; all stay loaded in one process, and the device is held.

        Parameters
        ----------
        jobs, rule, seed, exclusive
            As it takes them.
        """
        limit_sec = self._policy.run_timeout_sec(self._config)
        rounds = LocalRounds(self._ready_worker, self.close, self._config, limit_sec)
        with exclusive():
            played = rounds.play(jobs, rule, seed)
        if not self._policy.has_context:
            self.close()  # All of them are still loaded.
        return played

    def warm_up(self) -> None:
        """Start the worker process now."""
        if self._worker is None:
            limit = self._config.memory_limit_bytes
            self._worker = WorkerProcess(
                memory_limit_bytes=limit,
                policy=self._policy,
                open_device=True,
                environment=self._environment,
                deadline=self._deadline,
            )

    def others(self) -> str:
        return "" if self._device is None else self._policy.others(self._device)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _ready_worker(self) -> WorkerProcess:
        self.warm_up()
        assert self._worker is not None
        if not self._worker.requests:
            try:
                self._worker.wait_until_ready()
            except BaseException:
                self.close()
                raise
            self._initial_bytes = self._worker.own_bytes
        return self._worker

    def _retire(self) -> None:
        """End a worker that keeps what it should not: whoever builds meanwhile needs the memory."""
        worker = self._worker
        if worker is None or not worker.requests:
            return
        grown = worker.own_bytes - self._initial_bytes
        half = self._config.memory_limit_bytes // 2
        most = half if self._policy.has_context else min(half, _MOST_GROWN)
        if worker.requests >= _RETIRE_AFTER or grown > most:
            self.close()

    def _ask(self, worker: WorkerProcess, job: RunJob, exclusive: ExclusiveDevice) -> RunResult:
        """What came of it; raises a failure of a worker that somebody else killed."""
        try:
            answer = self._answer(worker, job, exclusive)
        except WorkerFailure as err:
            self.close()
            if err.was_killed:
                raise
            return RunResult(Cost(err.status, reason=f"the candidate {err.reason}"))
        except BaseException:
            # An interrupt or a deadline: the answer under way must not meet the next request.
            self.close()
            raise
        if answer.replace:
            self.close()
        if isinstance(answer, Failure):
            # A context keeps an error until it is asked: the next candidate would get the blame.
            if self._policy.has_context and answer.status in _LEAVES_ERRORS:
                self.close()
            return RunResult(Cost(answer.status, reason=answer.reason))
        return RunResult(
            Cost.of_samples(answer.samples_sec, self._others),
            answer.largest_error,
            answer.first_call_sec,
            clocks=answer.clocks,
        )

    def _answer(
        self, worker: WorkerProcess, job: RunJob, exclusive: ExclusiveDevice
    ) -> Measured | Failure:
        """What the worker says to the job; a GPU is held between the first and the last call.

        A candidate that fails leaves the context, and one that hangs or crashes only after its
        process has ended: whoever comes next finds the device idle.
        """
        test = (job.library, (job.sample,), self._config)
        limit_sec = self._policy.run_timeout_sec(self._config)
        if not self._policy.kind.compiles_beside:
            meter = LoadMeter([worker.pid])
            worker.send(Run(*test), limit_sec)
            answer = worker.receive(Measured)
            self._others = round(meter.read().others, 3)
            return answer
        worker.send(Prepare(*test), limit_sec)
        prepared = worker.receive(Done)
        if isinstance(prepared, Failure):
            return prepared
        begin = time.perf_counter()
        with exclusive():
            self._waited_sec += time.perf_counter() - begin
            worker.go_on(Measure())
            timed = worker.receive(Done)
        if isinstance(timed, Failure):
            return timed
        worker.go_on(Judge())
        return worker.receive(Measured)
