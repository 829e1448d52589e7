"""Times whole models against each other, in rounds that all of them play.

Each model lives in a process of its own: the thread pools of two in one process would disturb each
other. All but the one that is being timed are stopped (SIGSTOP), since a pool goes on
spinning for a while after its last call. A turn is short and everybody has one in each round, so
whatever befalls the machine for seconds befalls all of them; the order of turns changes from round
to round, so nobody always comes after the same. Where memory has no room for all of them, some
play at a time, and the best of those meets the next ones. Who plays and when it is over is decided
by a :class:`~collage.cost.contest.ContestRule`, from ratios within rounds alone.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from collage.backends.contract.errors import OutOfTimeError
from collage.cost.base import Cost
from collage.cost.config import MeasureConfig
from collage.cost.contest import Heat, InTime, Played, joined, number_of_heats, play, who_fits
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import CPU_POLICY, DevicePolicy
from collage.cost.device.load import LoadMeter
from collage.cost.measure.runner import RunResult
from collage.cost.measure.whole_models.contestants import (
    MODEL_TIMEOUT_SEC,
    Contestant,
    Turns,
    config_of_turns,
    results,
)
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, ModelTimer, WholeModel
from collage.cost.measure.whole_models.room import needs_of, room_for
from collage.cost.processes.failure import WorkerFailure
from collage.cost.processes.kills import Kills
from collage.cost.processes.messages import (
    A,
    Check,
    Checked,
    Failure,
    Request,
    Time,
    TimeCalls,
    Timed,
    TimedCalls,
)
from collage.cost.processes.messages import Load as LoadModel
from collage.cost.processes.worker_process import WorkerProcess
from collage.cost.progress import ProgressCallback, ignore


@dataclass
class _Contestant(Contestant):
    worker: WorkerProcess = field(kw_only=True)
    killed: WorkerFailure | None = field(default=None, kw_only=True)
    gone: bool = field(default=False, kw_only=True)


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
    >>> from collage.backends import compile_module, stage_libraries
    >>> from collage.backends.contract import BackendTarget, BuildContext
    >>> from collage.cost.measure import EndToEndQuestion, WholeModel
    >>> from collage.cost.reference import Sample
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> from tvm.target import Target
    >>> targets = (BackendTarget.of("tvm", Target("llvm")),)
    >>> context, model = BuildContext(Path("cache"), Path("work")), Path("model.so").absolute()
    >>> mod = graph([(8, 8)], lambda _, x: op.nn.relu(x))
    >>> library = compile_module(mod, targets, model, context)
    >>> staged = stage_libraries(library, copy=False)
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
        self._ready: list[WorkerProcess] = []

    @contextmanager
    def begun(self, question: EndToEndQuestion, deadline: Deadline = NEVER) -> Iterator[None]:
        """Where others measure meanwhile, the models' processes begin before the device is held:
        on crowded cores that takes seconds.

        Parameters
        ----------
        question, deadline
            See :meth:`ModelTimer.begun`.

        Yields
        ------
        None
            When all are there.
        """
        try:
            if self._policy.kind.compiles_beside:
                self._ready = [self._worker(deadline) for _ in question.models]
                for worker in self._ready:
                    worker.wait_until_ready()
            yield
        finally:
            for worker in self._ready:
                worker.close()
            self._ready = []

    def measure(
        self, question: EndToEndQuestion, libraries: Sequence[Path], deadline: Deadline = NEVER
    ) -> list[RunResult]:
        # Of each model: who killed it may have meant another process.
        kills = [Kills() for _ in question.models]
        while True:
            contestants, played = self._measure(question, libraries, deadline)
            again = False
            for contestant, count in zip(contestants, kills, strict=True):
                if contestant.killed is not None:
                    again |= count.is_asked_again(contestant.killed.status)
                    status, reason = count.verdict(f"the model {contestant.killed.reason}")
                    contestant.failure = Cost(status, reason=reason)
            if not again:
                return results(contestants, played, question.contest)

    def _measure(
        self,
        question: EndToEndQuestion,
        libraries: Sequence[Path],
        deadline: Deadline,
    ) -> tuple[list[_Contestant], Played]:
        """One contest, from loading the models on."""
        models = question.models
        needs, room = needs_of(models), room_for(models, self._policy.kind)
        everybody: list[_Contestant] = []
        heats: list[Heat] = []
        waiting, staying = list(range(len(models))), None
        with tempfile.TemporaryDirectory(dir=self._scratch, prefix="model-") as name:
            samples = tuple(Path(name) / str(i) for i in range(len(question.samples)))
            for sample, folder in zip(question.samples, samples, strict=True):
                sample.save(folder)
            try:
                while waiting:
                    left = number_of_heats(waiting, needs, room, staying)
                    end = Deadline.after(deadline.left_sec() / left) if left > 1 else NEVER
                    entering = who_fits(waiting, needs, room, staying)
                    waiting = waiting[len(entering) :]
                    # All processes start at once; none is timed before the last one has loaded.
                    for number in entering:
                        everybody.append(self._enter(models[number], deadline))
                    for number in entering:
                        self._load(everybody[number], libraries[number], samples)
                    playing = tuple(entering) if staying is None else (staying, *entering)
                    contestants = [everybody[number] for number in playing]
                    heats.append(Heat(playing, self._play(contestants, question, end)))
                    staying = None
                    if waiting and not question.provisional:
                        right = {n for n in playing if not everybody[n].is_out}
                        staying = heats[-1].best(right)
                    for number in playing:
                        if number != staying:
                            self._leave(everybody[number], question)
            finally:
                for contestant in everybody:
                    if not contestant.gone:
                        contestant.worker.close()
        return everybody, joined(heats, len(models))

    def _leave(self, contestant: _Contestant, question: EndToEndQuestion) -> None:
        """Check one that plays no more, time its calls, and free its memory."""
        self._ask(contestant, Check(""), Checked)
        if contestant.model.taken_apart and not question.provisional:
            self._take_apart(contestant)
        contestant.worker.close()
        contestant.gone = True

    def _enter(self, model: WholeModel, deadline: Deadline) -> _Contestant:
        worker = self._ready.pop() if self._ready else self._worker(deadline)
        return _Contestant(model, worker=worker)

    def _worker(self, deadline: Deadline) -> WorkerProcess:
        return WorkerProcess(
            memory_limit_bytes=4 * self._config.memory_limit_bytes,
            policy=self._policy,
            open_device=True,
            environment=self._environment,
            deadline=deadline,
        )

    def _load(self, contestant: _Contestant, library: Path, samples: tuple[Path, ...]) -> None:
        turns = config_of_turns(self._config)
        answer = self._ask(contestant, LoadModel(library, samples, turns, ""), Checked)
        if answer is not None:
            contestant.first_call_sec = answer.first_call_sec
            contestant.largest_error = answer.largest_error

    def _play(
        self, contestants: Sequence[_Contestant], question: EndToEndQuestion, end: Deadline
    ) -> Played:
        def ask(contestant: _Contestant) -> Timed | None:
            return self._ask(contestant, Time("", as_part=False), Timed)

        meter = LoadMeter(contestant.worker.pid for contestant in contestants)
        turns = Turns(contestants, ask, meter.read, question.rounds, self._progress)
        # To know whether a model runs at all, one disturbed round is enough.
        watchful = not question.provisional
        rule = InTime(question.rule, end.left_sec())
        return play(turns, len(contestants), rule, watchful=watchful)

    def _take_apart(self, contestant: _Contestant) -> None:
        """Time each call inside a model that has played; one that does not survive this was timed
        all the same."""
        if contestant.is_out:
            return
        with suppress(WorkerFailure, OutOfTimeError):
            contestant.worker.resume()
            contestant.worker.send(TimeCalls(""), MODEL_TIMEOUT_SEC)
            answer = contestant.worker.receive(TimedCalls)
            if isinstance(answer, TimedCalls):
                contestant.calls = answer.calls

    def _ask(self, contestant: _Contestant, request: Request, kind: type[A]) -> A | None:
        """Let one model run; the others stand still. A failure ends its part."""
        if contestant.is_out:
            return None
        begin = time.perf_counter()
        try:
            contestant.worker.resume()
            contestant.worker.send(request, MODEL_TIMEOUT_SEC)
            answer = contestant.worker.receive(kind)
            contestant.worker.suspend()
        except WorkerFailure as err:
            contestant.killed = err if err.was_killed else None
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
