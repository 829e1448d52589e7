"""Compiles workloads in warm worker processes of this machine, several at a time.

For a CPU, building never overlaps timing; for a GPU, what has been built is timed while the
processor goes on building.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collage.backends.contract import BuildContext
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import CPU_POLICY, DevicePolicy
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
from collage.cost.processes.described import TargetMessage, WorkloadMessage
from collage.cost.processes.messages import Build, Built, Failure
from collage.cost.processes.worker_pool import WorkerPool


class LocalBuilder(Builder):
    """Compiles in parallel worker processes; use as a context manager.

    Parameters
    ----------
    context : BuildContext
        Cache folder, threads and compiler. Each job has its own folder; ``work_dir`` holds the
        references that several of them share.
    config : MeasureConfig
        Time and memory limits, seed.
    plugins : sequence of str
        For backends registered at run time, see :mod:`collage.cost.processes.plugins`.
    parallel : int
        Worker processes.
    policy : DevicePolicy, optional
        Of the device that is compiled for.
    deadline : Deadline, optional
        When it comes, what is being built is given up.

    Examples
    --------
    >>> from pathlib import Path
    >>> from collage.backends.contract import BackendTarget
    >>> from collage.cost.workload import Workload
    >>> from tvm import relax
    >>> from tvm.target import Target
    >>> from collage.testing import graph
    >>> workload = Workload.from_module(graph([(8, 8)], lambda _, x: relax.op.nn.relu(x)))
    >>> job = BuildJob(workload, BackendTarget.of("tvm", Target("llvm")), Path("work/0").absolute())
    >>> context = BuildContext(Path("cache").absolute(), Path("work").absolute())
    >>> with LocalBuilder(context, MeasureConfig(), parallel=1) as builder:
    ...     (result,) = builder.build([job])
    >>> result.status, result.library.name
    (<CostStatus.VALID: 'valid'>, 'model.so')
    """

    def __init__(
        self,
        context: BuildContext,
        config: MeasureConfig,
        plugins: Sequence[str] = (),
        parallel: int = 2,
        policy: DevicePolicy = CPU_POLICY,
        deadline: Deadline = NEVER,
    ) -> None:
        self._context = context
        self._seed = config.seed
        self._pool = WorkerPool(
            plugins,
            parallel,
            policy,
            timeout_sec=policy.build_timeout_sec(config),
            memory_limit_bytes=config.memory_limit_bytes,
            deadline=deadline,
            niceness=policy.kind.niceness,
        )

    def close(self) -> None:
        self._pool.close()

    def build(
        self,
        jobs: Sequence[BuildJob],
        done: BuildDone = nobody_waits,
        more: More = nothing_more,
    ) -> list[BuildResult]:
        numbered = NumberedJobs(jobs, done, more)
        self._pool.ask(
            len(jobs),
            lambda index: self._request(numbered.known[index]),
            Built,
            lambda index, answer: numbered.take(index, _result(answer)),
            lambda: numbered.another() is not None,
        )
        return numbered.in_order()

    def _request(self, job: BuildJob) -> Build:
        return Build(
            WorkloadMessage.of(job.workload),
            TargetMessage.of(job.target),
            job.folder,
            self._context.work_dir / "references",
            replace(self._context, work_dir=job.folder / "work"),
            self._seed,
        )


def _result(answer: Built | Failure) -> BuildResult:
    if isinstance(answer, Failure):
        return BuildResult(answer.status, answer.reason)
    return BuildResult(CostStatus.VALID, "", answer.library, answer.build_sec)
