"""Compiling through an executor, wherever its functions run.

What goes wrong with an executor is never a candidate's fault: it is tried again, and in the end
built here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import replace
from pathlib import Path

from collage.backends.contract import Tunable
from collage.backends.contract.errors import MeasurementError
from collage.cost.base import CostStatus
from collage.cost.engines._far_build import (
    Delivered,
    Limits,
    NotBuilt,
    Order,
    Refused,
    build_there,
    read_delivery,
)
from collage.cost.engines.shipping import unpack
from collage.cost.measure.builder import (
    BuildDone,
    Builder,
    BuildJob,
    BuildResult,
    More,
    NumberedJobs,
    nobody_waits,
    nothing_more,
)
from collage.cost.measure.engine import Work
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.versions import versions_here
from collage.cost.processes.described import TargetMessage, WorkloadMessage
from collage.cost.processes.messages import Build
from collage.cost.processes.plugins import found_with
from collage.cost.processes.protocol import encode

_POLL_SEC = 0.1
"""How often a deadline is looked at while nothing comes back."""

_TRIES = 3
"""By the executor, before something is built here."""


class ExecutorBuilder(Builder):
    """Compiles through an executor.

    What a backend chooses by trying it out on this machine's device is compiled here, where the
    choice is known.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Stays its owner's.
    work : Work
        Limits, folders, the kind of device.
    plugins : sequence of str
        For backends registered at run time, see :mod:`collage.cost.processes.plugins`.
    parallel : int
        Workloads that are handed to it at the same time.
    idle_sec : float
        How long a warm compiler that has nothing to do is kept.
    """

    def __init__(
        self,
        executor: Executor,
        work: Work,
        plugins: Sequence[str],
        parallel: int,
        idle_sec: float,
    ) -> None:
        self._executor = executor
        self._work = work
        self._plugins = tuple(plugins)
        self._parallel = parallel
        config = work.config
        self._limits = Limits(
            work.policy.build_timeout_sec(config), config.memory_limit_bytes, idle_sec
        )
        # Whatever else this process knows, nobody over there is asked for.
        known = found_with(self._plugins)
        self._versions = versions_here(work.policy, work.context.cxx, known)
        self._here: LocalBuilder | None = None
        self._wanted: Path | None = None
        self._warned = self._is_broken = False

    def build(
        self,
        jobs: Sequence[BuildJob],
        done: BuildDone = nobody_waits,
        more: More = nothing_more,
    ) -> list[BuildResult]:
        numbered = NumberedJobs(jobs, done, more)
        take, another = numbered.take, numbered.another
        try:
            while left := self._build_there(numbered.known, len(numbered.results), take, another):
                self._build_here(numbered.known, left, take, another)
        except BaseException:
            # An interrupt or a deadline: nobody reads what is under way.
            self.close()
            raise
        return numbered.in_order()

    def close(self) -> None:
        if self._wanted is not None:
            self._wanted.unlink(missing_ok=True)
            self._wanted = None
        if self._here is not None:
            self._here.close()
            self._here = None

    def _build_here(
        self,
        jobs: Sequence[BuildJob],
        left: Sequence[int],
        take: Callable[[int, BuildResult], None],
        another: Callable[[], int | None],
    ) -> None:
        numbers = list(left)

        def more() -> BuildJob | None:
            if not self._is_broken or (index := another()) is None:
                return None
            numbers.append(index)
            return jobs[index]

        # In the order given, and by its numbers.
        self._builder_here().build(
            [jobs[index] for index in left], lambda n, result: take(numbers[n], result), more
        )

    def _build_there(
        self,
        jobs: Sequence[BuildJob],
        first: int,
        take: Callable[[int, BuildResult], None],
        another: Callable[[], int | None],
    ) -> list[int]:
        """Have the executor build what it can; gives what is left, for which nothing else waits."""
        left = [index for index in range(first, len(jobs)) if self._is_tuned(jobs[index])]
        waiting = deque(index for index in range(first, len(jobs)) if index not in set(left))
        tries: Counter[int] = Counter()
        running: dict[Future[bytes], int] = {}
        try:
            while True:
                self._work.deadline.check()
                while not left and len(waiting) + len(running) < self._parallel:
                    if (index := another()) is None:
                        break
                    (left if self._is_tuned(jobs[index]) else waiting).append(index)
                if not waiting and not running:
                    break
                while waiting and len(running) < self._parallel:
                    order = self._order(jobs[waiting[0]])
                    try:
                        future = self._executor.submit(build_there, order)
                    except RuntimeError as err:  # Broken, or shut down.
                        self._warn(str(err))
                        self._is_broken = True
                        left += [*waiting, *running.values()]
                        return sorted(left)
                    running[future] = waiting.popleft()
                ended, _ = wait(running, _POLL_SEC, FIRST_COMPLETED)
                for future in ended:
                    index = running.pop(future)
                    try:
                        result = self._result(future, jobs[index])
                    except Exception as err:  # noqa: BLE001 (an executor may raise anything)
                        shutil.rmtree(jobs[index].folder, ignore_errors=True)
                        tries[index] += 1
                        if tries[index] < _TRIES:
                            waiting.append(index)
                        else:
                            self._warn(str(err) or type(err).__name__)
                            left.append(index)
                        continue
                    take(index, result)
        finally:
            for future in running:
                future.cancel()
        return sorted(left)

    def _result(self, future: Future[bytes], job: BuildJob) -> BuildResult:
        """What became of a job.

        Raises
        ------
        Exception
            Whatever is not the candidate's doing.
        """
        delivery, files = read_delivery(future.result())
        if isinstance(delivery, NotBuilt):
            return BuildResult(delivery.failure.status, delivery.failure.reason)
        if not isinstance(delivery, Delivered):
            assert isinstance(delivery, Refused)
            raise MeasurementError(delivery.reason)
        unpack(files, job.folder, self._limits.memory_bytes)
        library = job.folder / "model.so"
        return BuildResult(CostStatus.VALID, "", library, delivery.build_sec)

    def _order(self, job: BuildJob) -> bytes:
        context = self._work.context
        build = Build(
            WorkloadMessage.of(job.workload),
            TargetMessage.of(job.target),
            job.folder,
            job.folder / "references",
            # What the far side may not use: its password stays here.
            replace(context, tuning_database=None),
            self._work.config.seed,
        )
        left_sec = self._work.deadline.left_sec()
        return encode(
            Order(
                *(build, self._plugins, self._work.policy.kind.name, self._versions),
                *(self._limits, left_sec, self._token()),
            )
        )

    def _token(self) -> Path:
        """A file that is there as long as somebody waits."""
        if self._wanted is None:
            folder = self._work.context.work_dir.absolute()
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=folder, prefix="wanted-")
            os.close(handle)
            self._wanted = Path(name)
        return self._wanted

    def _is_tuned(self, job: BuildJob) -> bool:
        tries_out = self._work.policy.kind.compiles_beside
        return tries_out and isinstance(job.target.implementation, Tunable)

    def _builder_here(self) -> LocalBuilder:
        if self._here is None:
            work = self._work
            self._here = LocalBuilder(
                *(work.context, work.config, self._plugins, work.policy.builders()),
                *(work.policy, work.deadline),
            )
        return self._here

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the executor does not build everything, the rest is built here: {reason}",
                RuntimeWarning,
                stacklevel=4,
            )
