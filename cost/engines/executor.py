"""Any :class:`concurrent.futures.Executor` builds; this machine's devices time.

What is submitted is a function of bytes that gives bytes: threads, processes and Dask's clusters
carry it alike. The machines that it runs on need this project in the same versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

from collage.cost.device import DevicePolicy
from collage.cost.engines.executor_builder import ExecutorBuilder
from collage.cost.engines.local import LocalEngine
from collage.cost.measure.builder import Builder
from collage.cost.measure.engine import Engine, Work, WorkerInfo, Workers
from collage.cost.measure.whole_models.model_timer import ModelTimer
from collage.cost.progress import ProgressCallback


class ExecutorEngine(Engine):
    """Builds through an executor, and times on this machine.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Stays its owner's, who shuts it down. Processes are best spawned, not forked: they inherit
        the state of TVM's threads otherwise.
    parallel : int
        Workloads that are handed to it at the same time.
    elsewhere : bool
        Whether it builds on other machines, or on cores that are left alone by what is timed.
        Otherwise nothing is timed on a processor while something is built.
    idle_sec : float
        How long its processes keep a warm compiler that has nothing to do.
    places : Engine, optional
        Whose devices time; by default this machine's.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from collage.cost.device import CPU_POLICY
    >>> with ThreadPoolExecutor(2) as threads:
    ...     [worker.name for worker in ExecutorEngine(threads).inspect(CPU_POLICY)]
    ['cpu']
    """

    def __init__(
        self,
        executor: Executor,
        *,
        parallel: int = 16,
        elsewhere: bool = False,
        idle_sec: float = 30.0,
        places: Engine | None = None,
    ) -> None:
        self._executor = executor
        self._parallel = parallel
        self._elsewhere = elsewhere
        self._idle_sec = idle_sec
        self._places = places or LocalEngine()

    def open(self, work: Work) -> Workers:
        local = self._places.open(work)
        return _ExecutorWorkers(
            local, work, self._executor, self._parallel, self._idle_sec, self._elsewhere
        )

    def inspect(self, policy: DevicePolicy) -> list[WorkerInfo]:
        return [replace(info, builds=self._parallel) for info in self._places.inspect(policy)]


class _ExecutorWorkers(Workers):
    """Others' places, and an executor's builder.

    Parameters
    ----------
    local : Workers
        Whose places time.
    work : Work
        What they are for.
    executor : concurrent.futures.Executor
        Builds.
    parallel, idle_sec, elsewhere
        As of :class:`ExecutorEngine`.
    """

    def __init__(
        self,
        local: Workers,
        work: Work,
        executor: Executor,
        parallel: int,
        idle_sec: float,
        elsewhere: bool,
    ) -> None:
        self.device, self.places = local.device, local.places
        self.builds_beside = elsewhere or local.builds_beside
        self.tunes, self.unused = local.tunes, local.unused
        self._local, self._work, self._executor = local, work, executor
        self._parallel, self._idle_sec = parallel, idle_sec

    @property
    def parallel_builds(self) -> int:
        return self._work.parallel_builds or self._parallel

    def builder(self, plugins: Sequence[str]) -> Builder:
        return ExecutorBuilder(
            self._executor, self._work, plugins, self.parallel_builds, self._idle_sec
        )

    def timer(self, progress: ProgressCallback) -> ModelTimer:
        return self._local.timer(progress)

    def close(self) -> None:
        self._local.close()
