"""The builder: compiles workloads in warm worker processes, several at a time.

The role of MetaSchedule's builder. For a CPU, building never overlaps timing; for a GPU, what has
been built is timed while the processor goes on building.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collage.backends.base import BackendTarget, BuildContext
from collage.cost.base import CostStatus
from collage.cost.build_task import target_to_json
from collage.cost.device import available_cores
from collage.cost.measure_config import MeasureConfig
from collage.cost.process import WorkerFailure, WorkerProcess
from collage.cost.workload import Workload

_RETIRE_AFTER = 400
"""Builds after which a worker is replaced: TVM and LLVM never give all of their memory back."""


@dataclass(frozen=True)
class BuildJob:
    """A workload, the target to compile it for, and the folder for the result."""

    workload: Workload
    target: BackendTarget
    folder: Path


@dataclass(frozen=True)
class BuildResult:
    """A library on disk with its test data in ``inputs/`` and ``expected/``, or why there is none.

    Attributes
    ----------
    status : CostStatus
        ``VALID`` when built.
    reason : str
        One line, when not built.
    library : Path or None
        The linked shared library.
    build_sec : float
        Wall time in the worker, the reference's evaluation included.
    """

    status: CostStatus
    reason: str = ""
    library: Path | None = None
    build_sec: float = 0.0


class Builder:
    """Compiles in parallel worker processes; use as a context manager.

    Parameters
    ----------
    context : BuildContext
        Cache folder, threads and compiler. Each job has its own folder; ``work_dir`` holds the
        references that several of them share.
    config : MeasureConfig
        Time and memory limits, seed.
    plugins : sequence of str
        For backends registered at run time, see :mod:`collage.cost.plugins`.
    parallel : int
        Worker processes.
    device : str
        Kind of the device that is compiled for: ``cpu`` or ``cuda``.
    """

    def __init__(
        self,
        context: BuildContext,
        config: MeasureConfig,
        plugins: Sequence[str] = (),
        parallel: int = 2,
        device: str = "cpu",
    ) -> None:
        self._device = device
        self._context = context
        self._config = config
        self._plugins = list(plugins)
        self._workers: list[WorkerProcess | None] = [None] * parallel
        self._blas_threads = max(1, available_cores() // parallel) if parallel > 2 else None

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes; the next build starts new ones."""
        for slot in range(len(self._workers)):
            self._drop(slot)

    def warm_up(self) -> None:
        """Start the worker processes now; they import while the caller does other things."""
        for slot in range(len(self._workers)):
            self._worker(slot)

    def build(
        self,
        jobs: Sequence[BuildJob],
        done: Callable[[int, BuildResult], None] | None = None,
        go_on: Callable[[], bool] = lambda: True,
    ) -> list[BuildResult | None]:
        """Compile each job; one that fails, hangs or crashes gives an invalid result.

        Parameters
        ----------
        done : callable, optional
            Given each result, by the index of its job, as soon as it is there; the other workers
            go on meanwhile.
        go_on : callable, optional
            Asked before each job is begun; after a no, no more of them are.

        Returns
        -------
        list of BuildResult or None
            None for jobs that were not begun.
        """
        results: list[BuildResult | None] = [None] * len(jobs)
        waiting: Iterator[int] = iter(range(len(jobs)))
        running: dict[int, int] = {}
        self.warm_up()
        try:
            for slot in range(min(len(self._workers), len(jobs))):
                self._start(slot, jobs, waiting, running)
            while running:
                ended = []
                for slot, result in self._finished(running):
                    index = running.pop(slot)
                    results[index] = result
                    ended.append((index, result))
                    if go_on():
                        self._start(slot, jobs, waiting, running)
                if done is not None:
                    for index, result in ended:
                        done(index, result)
        except BaseException:
            # An interrupt leaves answers under way that nobody will read.
            self.close()
            raise
        return results

    def _start(
        self,
        slot: int,
        jobs: Sequence[BuildJob],
        waiting: Iterator[int],
        running: dict[int, int],
    ) -> None:
        index = next(waiting, None)
        if index is None:
            return
        timeout_sec = self._config.build_timeout(self._device)
        self._worker(slot).send(self._request(jobs[index]), timeout_sec)
        running[slot] = index

    def _finished(self, running: dict[int, int]) -> list[tuple[int, BuildResult]]:
        workers = {slot: self._worker(slot) for slot in running}
        select.select(list(workers.values()), [], [], 0.02)
        ended = []
        for slot, worker in workers.items():
            try:
                answer = worker.poll(0.0)
            except WorkerFailure as err:
                self._drop(slot)
                ended.append((slot, BuildResult(err.status, f"the compiler {err.reason}")))
            else:
                if answer is not None:
                    ended.append((slot, _result(answer)))
        return ended

    def _worker(self, slot: int) -> WorkerProcess:
        worker = self._workers[slot]
        if worker is not None and worker.requests >= _RETIRE_AFTER and worker.idle:
            self._drop(slot)
            worker = None
        if worker is None:
            limit = self._config.memory_limit_bytes
            worker = WorkerProcess(
                self._plugins,
                memory_limit_bytes=limit,
                device=self._device,
                blas_threads=self._blas_threads,
            )
            self._workers[slot] = worker
        return worker

    def _drop(self, slot: int) -> None:
        worker = self._workers[slot]
        if worker is not None:
            worker.close()
        self._workers[slot] = None

    def _request(self, job: BuildJob) -> dict[str, Any]:
        log = self._context.tuning_log
        return {
            "task": "build",
            "workload": job.workload.to_json(),
            "target": target_to_json(job.target),
            "folder": str(job.folder),
            "references": str(self._context.work_dir / "references"),
            "cache_dir": str(self._context.cache_dir),
            "num_threads": self._context.num_threads,
            "cxx": self._context.cxx,
            "tuning_log": None if log is None else str(log),
            "replay": self._context.replay,
            "seed": self._config.seed,
        }


def _result(answer: dict[str, Any]) -> BuildResult:
    status = CostStatus(answer["status"])
    if status is not CostStatus.VALID:
        return BuildResult(status, answer["reason"])
    return BuildResult(status, "", Path(answer["library"]), answer["build_sec"])
