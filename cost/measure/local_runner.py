"""Times libraries on this machine's CPU or GPU, in a warm child process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from collage.cost.base import Cost, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database.record import Clocks
from collage.cost.device import CPU_POLICY, DevicePolicy
from collage.cost.measure.runner import Alone, RunJob, Runner, RunResult
from collage.cost.processes.worker_process import WorkerFailure, WorkerProcess
from collage.cost.worker.sampling import summarize

_LEAVES_ERRORS = (CostStatus.RUN_FAILED, CostStatus.OUT_OF_MEMORY)

_RETIRE_AFTER = 200
"""Runs after which the worker is replaced: libraries leave threads and memory behind."""


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
    """

    def __init__(
        self,
        config: MeasureConfig,
        *,
        fresh_process: bool = False,
        policy: DevicePolicy = CPU_POLICY,
    ) -> None:
        self._config = config
        self._policy = policy
        self._fresh_process = fresh_process
        self._worker: WorkerProcess | None = None
        self._initial_bytes = 0
        self._waited_sec = 0.0

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: RunJob) -> RunResult:
        return self._run(job, nullcontext)

    def run_sharing(self, job: RunJob, alone: Alone) -> RunResult:
        """Needs the device alone only from the first call to the last one that is timed, unless it
        is one on which everything else runs too."""
        if self._policy.kind.compiles_beside:
            return self._run(job, alone)
        return super().run_sharing(job, alone)

    def _run(self, job: RunJob, alone: Alone) -> RunResult:
        begin, self._waited_sec = time.perf_counter(), 0.0
        worker = self._ready_worker()
        first = worker.requests == 0
        result = self._ask(worker, job, alone)
        if result.cost.status is CostStatus.CRASHED and not first:
            # An earlier candidate may have corrupted the process; only a fresh one can accuse.
            result = self._ask(self._ready_worker(), job, alone)
        if self._fresh_process:
            self.close()
        elapsed = time.perf_counter() - begin - self._waited_sec
        return replace(result, run_sec=elapsed)

    def warm_up(self) -> None:
        """Start the worker process now."""
        if self._worker is None:
            limit = self._config.memory_limit_bytes
            self._worker = WorkerProcess(
                memory_limit_bytes=limit, device=self._policy.kind.name, open_device=True
            )

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _ready_worker(self) -> WorkerProcess:
        worker = self._worker
        if worker is not None and worker.requests:
            grown = worker.resident_bytes - self._initial_bytes
            if worker.requests >= _RETIRE_AFTER or grown > self._config.memory_limit_bytes // 2:
                self.close()
        self.warm_up()
        assert self._worker is not None
        if self._worker.requests == 0:
            self._worker.wait_until_ready()
            self._initial_bytes = self._worker.resident_bytes
        return self._worker

    def _ask(self, worker: WorkerProcess, job: RunJob, alone: Alone) -> RunResult:
        request = {
            "task": "prepare" if self._policy.kind.compiles_beside else "run",
            "library": str(job.library),
            "inputs": str(job.inputs),
            "expected": str(job.expected),
            "half": job.half,
            "config": self._config.to_dict(),
        }
        try:
            worker.send(request, self._policy.run_timeout_sec(self._config))
            answer = worker.receive()
            if self._policy.kind.compiles_beside and _is_valid(answer):
                answer = self._measure_alone(worker, alone)
        except WorkerFailure as err:
            self.close()
            return RunResult(Cost(err.status, reason=f"the candidate {err.reason}"))
        except BaseException:
            self.close()  # An interrupt: the answer under way must not meet the next request.
            raise
        status = CostStatus(answer["status"])
        # A context keeps an error until it is asked: the next candidate would get the blame.
        spoilt = self._policy.has_context and status in _LEAVES_ERRORS
        if answer.get("replace", False) or spoilt:
            self.close()
        if status is not CostStatus.VALID:
            return RunResult(Cost(status, reason=answer["reason"]))
        samples: Sequence[float] = answer["samples_sec"]
        return RunResult(
            summarize(samples),
            answer["largest_error"],
            answer["first_call_sec"],
            clocks=clocks_of(answer),
        )

    def _measure_alone(self, worker: WorkerProcess, alone: Alone) -> dict[str, Any]:
        """Let the worker go on with what it has prepared: its answer.

        A candidate that fails leaves the context, and one that hangs or crashes only after its
        process has ended: whoever comes next finds the device idle.
        """
        begin = time.perf_counter()
        with alone():
            self._waited_sec += time.perf_counter() - begin
            worker.go_on({"task": "measure"})
            answer = worker.receive()
        if _is_valid(answer):
            worker.go_on({"task": "judge"})
            answer = worker.receive()
        return answer


def _is_valid(answer: dict[str, Any]) -> bool:
    return CostStatus(answer["status"]) is CostStatus.VALID


def clocks_of(answer: dict[str, Any]) -> Clocks | None:
    """The clocks in a worker's answer."""
    found = answer.get("clocks")
    return Clocks(*found) if found is not None else None
