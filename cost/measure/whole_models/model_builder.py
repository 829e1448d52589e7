"""Whole partitioned models, compiled several at a time in worker processes.

The variants of one model share their weights, which are hundreds of megabytes: they are written to
files once, and the modules, which then are small, refer to them.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import tvm

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import CodegenError, CompileError, OutOfTimeError
from collage.backends.link import CompiledLibrary
from collage.backends.toolchain.children.freed_memory import return_freed_memory
from collage.backends.toolchain.children.mapped_pages import forget_pages
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import policy_for
from collage.cost.processes.described import TargetMessage
from collage.cost.processes.messages import Compiled, CompileModel, Failure
from collage.cost.processes.plugins import plugins_for
from collage.cost.processes.staging import compile_to_measure
from collage.cost.processes.worker_pool import WorkerPool
from collage.cost.workload.shared_weights import module_file, weights_folder, write_modules

_PATIENCE = 10.0
"""How much longer than a single workload a whole model may take to compile."""

_MEMORY = 4
"""How much more memory it may take, as for running it."""

_COPIES = 6
"""Copies of the weights that a compiler holds at once: the module's, the serialized ones, the
object's on their way to the linker."""

_COMPILER_BYTES = 1 << 30
"""Memory of a compiler besides those."""


@dataclass(frozen=True)
class ModelJob:
    """A partitioned module, the library to make of it, and its name for messages.

    Examples
    --------
    >>> from tvm import relax
    >>> from collage.testing import graph
    >>> mod = graph([(8, 8)], lambda _, x: relax.op.nn.relu(x))
    >>> ModelJob(mod, Path("variants/0/model.so"), "all tvm").output.name
    'model.so'
    """

    module: tvm.IRModule
    output: Path
    description: str = ""


@dataclass(frozen=True)
class ModelResult:
    """A linked library with what it needs staged beside it, or why there is none.

    Attributes
    ----------
    status : CostStatus
        ``VALID`` when compiled.
    reason : str
        One line, when not compiled.
    library : CompiledLibrary or None
        None when not compiled.

    Examples
    --------
    >>> ModelResult(CostStatus.TIMED_OUT, "took longer than 600 s").library is None
    True
    """

    status: CostStatus
    reason: str = ""
    library: CompiledLibrary | None = None

    @classmethod
    def out_of_time(cls) -> ModelResult:
        """Of a model that there was no time for."""
        return cls(CostStatus.UNKNOWN, "not compiled: the time budget was spent")


ModelDone = Callable[[int, ModelResult], None]
"""Told of each model that is compiled, or failed to be, by the index of its job."""


def nobody_waits(index: int, result: ModelResult) -> None:
    """Tells nobody.

    Parameters
    ----------
    index : int
        Of the job.
    result : ModelResult
        What came of it.
    """


def compile_models(
    jobs: Sequence[ModelJob],
    targets: Sequence[BackendTarget],
    context: BuildContext,
    config: MeasureConfig,
    parallel: int,
    done: ModelDone,
    deadline: Deadline = NEVER,
) -> list[ModelResult]:
    """Compile variants of one model at once; one that fails, hangs or crashes hurts no other.

    Parameters
    ----------
    jobs : sequence of ModelJob
        Their outputs lie in folders of their own.
    targets : sequence of BackendTarget
        Everything that the variants may use.
    context : BuildContext
        Its scratch folder is shared.
    config : MeasureConfig
        The limits of single workloads, which are widened.
    parallel : int
        Compilers at a time at the most; fewer where they would not fit into memory.
    done : callable
        Given each result, by the index of its job, as soon as it is there.
    deadline : Deadline, optional
        When it comes, those that are not compiled are given up: their result is unknown.

    Returns
    -------
    list of ModelResult
        In the order of the jobs; one that was not begun in time says so.

    Raises
    ------
    MeasurementError
        When no worker process can be started.
    """
    if len(jobs) == 1 and not deadline.is_limited:
        # As a refinement compiles its trials: not worth a process, unless it has to be ended.
        result = _compile_here(jobs[0], targets, context)
        done(0, result)
        return [result]
    results: dict[int, ModelResult] = {}

    def take(index: int, answer: Compiled | Failure) -> None:
        results[index] = _result(answer)
        done(index, results[index])

    policy = policy_for(targets)
    context.work_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=context.work_dir, prefix="models-") as name:
        folder = Path(name)
        weights_bytes = write_modules([job.module for job in jobs], folder)
        return_freed_memory()
        forget_pages(context.work_dir)
        messages = tuple(TargetMessage.of(target) for target in targets)

        def request(index: int) -> CompileModel:
            return CompileModel(
                module_file(folder, index),
                weights_folder(folder),
                jobs[index].output,
                messages,
                context,
            )

        pool = WorkerPool(
            plugins_for(targets),
            min(len(jobs), parallel, _that_fit(weights_bytes)),
            policy,
            timeout_sec=_PATIENCE * policy.build_timeout_sec(config),
            memory_limit_bytes=_MEMORY * config.memory_limit_bytes,
            deadline=deadline,
            # A single one is the first that will run; of several none is waited for alone.
            niceness=policy.kind.niceness if len(jobs) > 1 else 0,
        )
        with pool, contextlib.suppress(OutOfTimeError):
            pool.ask(len(jobs), request, Compiled, take)
    return [results.get(index) or ModelResult.out_of_time() for index in range(len(jobs))]


def _compile_here(
    job: ModelJob, targets: Sequence[BackendTarget], context: BuildContext
) -> ModelResult:
    try:
        library = compile_to_measure(job.module, targets, job.output, context)
    except (CodegenError, CompileError) as err:
        return ModelResult(CostStatus.BUILD_FAILED, str(err))
    return ModelResult(CostStatus.VALID, library=library)


def _that_fit(weights_bytes: int) -> int:
    """How many compilers fit into the memory that is free now; one in any case."""
    each = _COPIES * weights_bytes + _COMPILER_BYTES
    return max(1, int(psutil.virtual_memory().available) // each)


def _result(answer: Compiled | Failure) -> ModelResult:
    if isinstance(answer, Failure):
        return ModelResult(answer.status, answer.reason)
    return ModelResult(CostStatus.VALID, "", answer.library)
