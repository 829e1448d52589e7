"""Times whole models against each other, in rounds that all of them play.

Each model lives in a process of its own: the thread pools of two in one process would disturb each
other. All but the one that is being timed are stopped (SIGSTOP), since a pool goes on
spinning for a while after its last call. A turn is short and everybody has one in each round, so
whatever befalls the machine for seconds befalls all of them; the order of turns changes from round
to round, so nobody always comes after the same. Who plays and when it is over is decided by a
:class:`~collage.cost.contest.ContestRule`, from ratios within rounds alone.

On a CUDA device a sample is the time from one event to another around enough calls to last
``MeasureConfig.min_repeat_sec``, one after the other on one stream, from an idle device on. Nothing
is flushed between the calls, as little as a user would: a model that fits into the second-level
cache may find its weights there. Nothing is hidden either: where launching takes longer than the
kernels, the time is that of launching; a model that was compiled with CUDA graphs has captured
them before the first sample.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collage.backends.contract.errors import OutOfTimeError
from collage.cost.base import Clocks, Cost
from collage.cost.config import MeasureConfig
from collage.cost.contest import (
    Load,
    Played,
    Rounds,
    disturbed_rounds,
    play,
    to_discard,
    without,
)
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import CPU_POLICY, DevicePolicy
from collage.cost.device.load import LoadMeter
from collage.cost.measure.model_timer import EndToEndQuestion, ModelTimer, WholeModel
from collage.cost.measure.replay import NO_TIME
from collage.cost.measure.runner import RunResult
from collage.cost.processes.messages import A, Check, Checked, Failure, Request, Time, Timed
from collage.cost.processes.messages import Load as LoadModel
from collage.cost.processes.worker_process import WorkerFailure, WorkerProcess
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore

_SAMPLES = 4
_FEWEST_SAMPLES = 2
_TURN_SEC = 0.04
"""Of one turn. Many short rounds tell more than few long ones, but each turn begins with a call
that finds nothing in the caches."""

_TIMEOUT_SEC = 300.0
"""For loading a whole model and for one turn: minutes for one without any schedule."""


@dataclass
class _Contestant:
    model: WholeModel
    worker: WorkerProcess
    failure: Cost | None = None
    stopped: bool = False
    first_call_sec: float = 0.0
    largest_error: float = 0.0
    run_sec: float = 0.0
    clocks: Clocks | None = None

    @property
    def is_out(self) -> bool:
        return self.failure is not None or self.stopped


class EndToEndTimer(ModelTimer):
    """Times libraries in alternation, on a device of this machine.

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
    environment : mapping of str to str, optional
        Of the processes that run: which of several devices they are to see.

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
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = environment
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
                played = self._play(contestants, question)
                for contestant in contestants:
                    self._ask(contestant, Check(), Checked)
            finally:
                for contestant in contestants:
                    contestant.worker.close()
        return _results(contestants, played, question.contest)

    def _enter(self, model: WholeModel, deadline: Deadline) -> _Contestant:
        worker = WorkerProcess(
            memory_limit_bytes=4 * self._config.memory_limit_bytes,
            policy=self._policy,
            open_device=True,
            environment=self._environment,
            deadline=deadline,
        )
        return _Contestant(model, worker)

    def _load(self, contestant: _Contestant, library: Path, samples: tuple[Path, ...]) -> None:
        turns = replace(
            self._config,
            repeat=min(self._config.repeat, _SAMPLES),
            min_repeat=min(self._config.min_repeat, _FEWEST_SAMPLES),
            timing_budget_sec=min(self._config.timing_budget_sec, _TURN_SEC),
        )
        answer = self._ask(contestant, LoadModel(library, samples, turns), Checked)
        if answer is not None:
            contestant.first_call_sec = answer.first_call_sec
            contestant.largest_error = answer.largest_error

    def _play(self, contestants: Sequence[_Contestant], question: EndToEndQuestion) -> Played:
        def ask(contestant: _Contestant) -> Timed | None:
            return self._ask(contestant, Time(), Timed)

        turns = _Turns(contestants, ask, question.rounds, self._progress)
        # To know whether a model runs at all, one disturbed round is enough.
        watchful = not question.provisional
        return play(turns, len(contestants), question.rule, watchful=watchful)

    def _ask(self, contestant: _Contestant, request: Request, kind: type[A]) -> A | None:
        """Let one model run; the others stand still. A failure ends its part."""
        if contestant.is_out:
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


class _Turns:
    """The stage of a contest: processes, one of which runs at a time."""

    def __init__(
        self,
        contestants: Sequence[_Contestant],
        ask: Callable[[_Contestant], Timed | None],
        rounds: int,
        progress: ProgressCallback,
    ) -> None:
        self._contestants = contestants
        self._ask = ask
        self._rounds = rounds
        self._progress = progress
        self._meter = LoadMeter(contestant.worker.pid for contestant in contestants)

    def turn(self, player: int, number: int) -> float | None:
        contestant = self._contestants[player]
        answer = self._ask(contestant)
        message = contestant.model.description
        done = min(number + 1, self._rounds)
        self._progress(ProgressEvent("end to end", done, self._rounds, message))
        if answer is None:
            return None
        contestant.clocks = answer.clocks or contestant.clocks
        return statistics.median(answer.samples_sec)

    def is_out(self, player: int) -> bool:
        return self._contestants[player].is_out

    def is_cut_short(self) -> bool:
        return any(contestant.stopped for contestant in self._contestants)

    def load(self) -> Load:
        return self._meter.read()


def _results(contestants: Sequence[_Contestant], played: Played, contest: str) -> list[RunResult]:
    pairs = list(zip(contestants, played.table, strict=True))
    right = [row for contestant, row in pairs if contestant.failure is None and any(row)]
    disturbed = disturbed_rounds(right, played.loads)
    discarded = to_discard(disturbed)
    if not all(any(row) for row in without(right, discarded)):
        discarded = ()  # The time was up before there was anything better.
    others = tuple(load.others for load in played.loads)
    results = []
    for contestant, row in pairs:
        cost, rounds = contestant.failure or NO_TIME, None
        if contestant.failure is None and any(row):
            rounds = Rounds(contest, row, disturbed, discarded, others)
            cost = Cost.of_samples([sec for sec in rounds.counted if sec is not None])
        results.append(
            RunResult(
                cost,
                contestant.largest_error,
                contestant.first_call_sec,
                contestant.run_sec,
                contestant.clocks,
                rounds,
            )
        )
    return results
