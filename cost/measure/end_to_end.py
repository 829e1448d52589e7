"""Times whole models against each other, in alternation.

Each model lives in a process of its own: the thread pools of two in one process would disturb each
other. All but the one that is being timed are stopped (SIGSTOP), since a pool goes on
spinning for a while after its last call. Going round several times spreads slow drifts of the
machine over all models alike.

On a CUDA device a sample is the time from one event to another around enough calls to last
``MeasureConfig.min_repeat_sec``, one after the other on one stream, from an idle device on. Nothing
is flushed between the calls, as little as a user would: a model that fits into the second-level
cache may find its weights there. Nothing is hidden either: where launching takes longer than the
kernels, the time is that of launching; a model that was compiled with CUDA graphs has captured
them before the first sample.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import OutOfTimeError
from collage.cost.base import Clocks, Cost
from collage.cost.config import MeasureConfig
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import CPU_POLICY, DevicePolicy
from collage.cost.measure.replay import NO_TIME
from collage.cost.measure.runner import RunResult
from collage.cost.processes.messages import A, Check, Checked, Failure, Load, Request, Time, Timed
from collage.cost.processes.worker_process import WorkerFailure, WorkerProcess
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.cost.reference import Sample

HOPELESS_RATIO = 2.0
"""A model this much slower than the best of the first round gets no further turns."""

_TIMEOUT_SEC = 300.0
"""For loading a whole model and for one turn: minutes for one without any schedule."""


@dataclass(frozen=True)
class WholeModel:
    """A whole model as the log knows it.

    Attributes
    ----------
    key : str
        Of the partitioned module, see :class:`collage.cost.database.keys.ModuleKeys`.
    description : str
        For the log and for messages, for example ``greedy onednn``.
    targets : tuple of BackendTarget
        Every target that the model was compiled for.

    Examples
    --------
    >>> from tvm.target import Target
    >>> WholeModel("5f1c", "all tvm", (BackendTarget.of("tvm", Target("llvm")),)).description
    'all tvm'
    """

    key: str
    description: str
    targets: tuple[BackendTarget, ...]


@dataclass(frozen=True, eq=False)
class EndToEndQuestion:
    """Which whole models are timed against each other, and on what.

    Attributes
    ----------
    models : sequence of WholeModel
        Those to compare.
    samples : sequence of Sample
        What to run them on, and what each must give. They are timed on the first.
    rounds : int
        Turns of each model; one that is hopelessly slower than the best gets fewer.
    provisional : bool
        Whether this is asked to know whether the models run at all: the times are too few to
        count for whoever asks for a comparison, and the log keeps them apart.
    data : str
        A digest of samples that the user gave, which belongs to the models' keys; empty for those
        that follow from the models.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm.target import Target
    >>> tvm_only = WholeModel("5f1c", "all tvm", (BackendTarget.of("tvm", Target("llvm")),))
    >>> x = np.ones((8, 8), np.float32)
    >>> EndToEndQuestion([tvm_only], [Sample.of([x], [x])]).rounds
    5
    """

    models: Sequence[WholeModel]
    samples: Sequence[Sample]
    rounds: int = 5
    provisional: bool = False
    data: str = ""


@dataclass
class _Contestant:
    model: WholeModel
    worker: WorkerProcess
    samples: list[float] = field(default_factory=list)
    failure: Cost | None = None
    stopped: bool = False
    first_call_sec: float = 0.0
    largest_error: float = 0.0
    run_sec: float = 0.0
    clocks: Clocks | None = None


class EndToEndTimer:
    """Times libraries in alternation.

    Parameters
    ----------
    config : MeasureConfig
        Samples per turn. Memory is limited to four times a candidate's limit.
    scratch : Path
        An existing folder for test data.
    progress : callable, optional
        Informed of each turn.
    policy : DevicePolicy, optional
        Of the device.

    Examples
    --------
    >>> import numpy as np
    >>> from collage.backends import compile_module
    >>> from collage.backends.contract import BuildContext
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> from tvm.target import Target
    >>> targets = (BackendTarget.of("tvm", Target("llvm")),)
    >>> context, model = BuildContext(Path("cache"), Path("work")), Path("model.so").absolute()
    >>> mod = graph([(8, 8)], lambda _, x: op.nn.relu(x))
    >>> library = compile_module(mod, targets, model, context)
    >>> x = np.ones((8, 8), np.float32)
    >>> models = [WholeModel("5f1c", "all tvm", targets)]
    >>> question = EndToEndQuestion(models, [Sample.of([x], [x])], rounds=1)
    >>> timer = EndToEndTimer(MeasureConfig(), Path.cwd())
    >>> [result.cost.is_valid for result in timer.measure(question, [model])]
    [True]
    """

    def __init__(
        self,
        config: MeasureConfig,
        scratch: Path,
        progress: ProgressCallback = ignore,
        policy: DevicePolicy = CPU_POLICY,
    ) -> None:
        self._config = config
        self._policy = policy
        self._scratch = scratch
        self._progress = progress

    def measure(
        self,
        question: EndToEndQuestion,
        libraries: Sequence[Path],
        deadline: Deadline = NEVER,
    ) -> list[RunResult]:
        """Check and time each model; see :meth:`MeasuredCostModel.measure_end_to_end`.

        Parameters
        ----------
        question : EndToEndQuestion
            The models to compare, and on what.
        libraries : sequence of Path
            What each was linked into.
        deadline : Deadline, optional
            When it comes, the turns so far count; a model without any has an unknown cost.
        """
        contestants: list[_Contestant] = []
        with tempfile.TemporaryDirectory(dir=self._scratch, prefix="model-") as name:
            samples = tuple(Path(name) / str(i) for i in range(len(question.samples)))
            for sample, folder in zip(question.samples, samples, strict=True):
                sample.save(folder)
            try:
                # All processes start at once; none is timed before the last one has loaded.
                for model in question.models:
                    contestants.append(self._enter(model, deadline))
                for contestant, library in zip(contestants, libraries, strict=True):
                    self._load(contestant, library, samples)
                for turn in range(question.rounds):
                    self._turn(contestants, turn, question.rounds)
                for contestant in contestants:
                    self._ask(contestant, Check(), Checked)
            finally:
                for contestant in contestants:
                    contestant.worker.close()
        return [_result(contestant) for contestant in contestants]

    def _enter(self, model: WholeModel, deadline: Deadline) -> _Contestant:
        worker = WorkerProcess(
            memory_limit_bytes=4 * self._config.memory_limit_bytes,
            policy=self._policy,
            open_device=True,
            deadline=deadline,
        )
        return _Contestant(model, worker)

    def _load(self, contestant: _Contestant, library: Path, samples: tuple[Path, ...]) -> None:
        answer = self._ask(contestant, Load(library, samples, self._config), Checked)
        if answer is not None:
            contestant.first_call_sec = answer.first_call_sec
            contestant.largest_error = answer.largest_error

    def _turn(self, contestants: list[_Contestant], turn: int, rounds: int) -> None:
        medians = [min(c.samples) for c in contestants if c.samples and c.failure is None]
        for contestant in contestants:
            if contestant.failure is not None or contestant.stopped:
                continue
            if turn and min(contestant.samples) > HOPELESS_RATIO * min(medians):
                continue
            answer = self._ask(contestant, Time(), Timed)
            if answer is not None:
                contestant.samples += answer.samples_sec
                contestant.clocks = answer.clocks or contestant.clocks
            self._progress(
                ProgressEvent("end to end", turn + 1, rounds, contestant.model.description)
            )

    def _ask(self, contestant: _Contestant, request: Request, kind: type[A]) -> A | None:
        """Let one model run; the others stand still. A failure ends its part."""
        if contestant.failure is not None or contestant.stopped:
            return None
        begin = time.perf_counter()
        try:
            contestant.worker.resume()
            contestant.worker.send(request, _TIMEOUT_SEC)
            answer = contestant.worker.receive(kind)
            contestant.worker.suspend()
        except WorkerFailure as err:
            contestant.failure = Cost(err.status, reason=f"the model {err.reason}")
            return None
        except OutOfTimeError:
            # Killed; it was right when it was loaded, so its turns so far count.
            contestant.stopped = True
            return None
        finally:
            contestant.run_sec += time.perf_counter() - begin
        if isinstance(answer, Failure):
            contestant.failure = Cost(answer.status, reason=answer.reason)
            return None
        return answer


def _result(contestant: _Contestant) -> RunResult:
    cost = contestant.failure or NO_TIME
    if contestant.failure is None and contestant.samples:
        cost = Cost.of_samples(contestant.samples)
    return RunResult(
        cost,
        contestant.largest_error,
        contestant.first_call_sec,
        contestant.run_sec,
        contestant.clocks,
    )
