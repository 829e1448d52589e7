"""Times whole models against each other on one server, in one session.

A server gives one session at a time, so all models are loaded into one process, and take turns in
the same rounds and by the same rules as on this machine. What that costs: the models share the
memory of one process, and none can be stopped while another runs. They share their thread pool,
too, so nothing spins beside the one whose turn it is. A model that crashes, hangs or eats memory
takes the session along; the others then begin anew, without it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from collage.backends.contract.errors import MeasurementError, OutOfTimeError
from collage.cost.base import Cost, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.contest import Load, Played, play
from collage.cost.deadline import NEVER, Deadline
from collage.cost.engines.rpc.runner import transfer_sec
from collage.cost.engines.rpc.server_wait import ServerWait
from collage.cost.engines.rpc.sessions import RpcSession, Sessions
from collage.cost.measure.replay import NO_TIME
from collage.cost.measure.runner import PlaceAwayError, PlaceLostError, RunJob, RunResult
from collage.cost.measure.whole_models.contestants import (
    MODEL_TIMEOUT_SEC,
    Contestant,
    Turns,
    config_of_turns,
    results,
)
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, ModelTimer
from collage.cost.processes.failure import WorkerFailure
from collage.cost.processes.messages import A, Check, Checked, Failure, Request, Time, Timed
from collage.cost.processes.messages import Load as LoadModel
from collage.cost.progress import ProgressCallback

_MOST_LOSSES = 3
"""Sessions that may end without anybody knowing why."""

_UNKNOWN_LOAD = Load(others=0.0, idle=1.0)
"""Rounds in which everybody was slow are found all the same."""


class RpcModelTimer(ModelTimer):
    """Times libraries in alternation, on one server.

    Parameters
    ----------
    sessions : Sessions
        Where to get one.
    release : callable
        Gives back the servers that candidates were timed on.
    progress : callable
        Informed of each turn.
    """

    def __init__(
        self, sessions: Sessions, release: Callable[[], None], progress: ProgressCallback
    ) -> None:
        self._sessions = sessions
        self._release = release
        self._progress = progress

    def measure(
        self, question: EndToEndQuestion, libraries: Sequence[Path], deadline: Deadline = NEVER
    ) -> list[RunResult]:
        self._release()
        contestants = [Contestant(model) for model in question.models]
        sessions = self._sessions.until(deadline)
        scratch = self._sessions.work.context.work_dir
        with tempfile.TemporaryDirectory(dir=scratch, prefix="model-") as name:
            samples = tuple(Path(name) / str(i) for i in range(len(question.samples)))
            for sample, folder in zip(question.samples, samples, strict=True):
                sample.save(folder)
            try:
                return self._measure(contestants, question, libraries, samples, sessions)
            except OutOfTimeError:
                failed = [one.failure for one in contestants]
                return [RunResult(failure or NO_TIME) for failure in failed]

    def _measure(
        self,
        contestants: list[Contestant],
        question: EndToEndQuestion,
        libraries: Sequence[Path],
        samples: tuple[Path, ...],
        sessions: Sessions,
    ) -> list[RunResult]:
        losses: list[str] = []
        waiting = ServerWait(sessions)
        while len(losses) < _MOST_LOSSES:
            try:
                session = waiting.take()
            except PlaceAwayError as err:
                # A tracker or a server that is started again is there soon.
                waiting.wait(str(err))
                continue
            waiting.is_over()
            one = _Contest(contestants, session, sessions, self._progress)
            try:
                played = one.play(question, libraries, samples)
            except PlaceLostError as err:
                losses.append(str(err))
            except _BeginAnew:
                pass  # One model fewer.
            else:
                return results(contestants, played, question.contest)
            finally:
                session.close()
        raise MeasurementError(
            f"whole models could not be timed behind {sessions.tracker.address}: {losses[-1]}",
            value=losses,
        )


class _BeginAnew(Exception):
    """A model has ended the session that all of them were in."""


class _Contest:
    """One attempt, in one session."""

    def __init__(
        self,
        contestants: list[Contestant],
        session: RpcSession,
        sessions: Sessions,
        progress: ProgressCallback,
    ) -> None:
        self._contestants = contestants
        self._session = session
        self._sessions = sessions
        self._progress = progress
        self._config = _for_whole_models(sessions.work.config)

    def play(
        self, question: EndToEndQuestion, libraries: Sequence[Path], samples: tuple[Path, ...]
    ) -> Played:
        """Load, play the rounds, check once more.

        Raises
        ------
        PlaceLostError
            When the session has ended, and nobody knows why.
        _BeginAnew
            When one of the models has ended it.
        """
        names = {id(one): str(number) for number, one in enumerate(self._contestants)}
        for one, library in zip(self._contestants, libraries, strict=True):
            limit_sec = sum(transfer_sec(RunJob(library, sample)) for sample in samples)
            request = LoadModel(library, samples, self._config, names[id(one)])
            answer = self._ask(one, request, Checked, limit_sec)
            if answer is not None:
                one.first_call_sec, one.largest_error = answer.first_call_sec, answer.largest_error
        turns = Turns(
            self._contestants,
            lambda one: self._ask(one, Time(names[id(one)], as_part=False), Timed),
            lambda: _UNKNOWN_LOAD,
            question.rounds,
            self._progress,
        )
        # To know whether a model runs at all, one disturbed round is enough.
        watchful = not question.provisional
        played = play(turns, len(self._contestants), question.rule, watchful=watchful)
        for one in self._contestants:
            self._ask(one, Check(names[id(one)]), Checked)
        return played

    def _ask(
        self, one: Contestant, request: Request, kind: type[A], transfer_sec: float = 0.0
    ) -> A | None:
        if one.is_out:
            return None
        begin = time.perf_counter()
        limit_sec = MODEL_TIMEOUT_SEC + self._sessions.options.patience_sec + transfer_sec
        try:
            self._session.worker.send(request, limit_sec)
            answer = self._session.worker.receive(kind)
        except (WorkerFailure, MeasurementError) as err:
            raise PlaceLostError(f"{self._session.grant.address}: the session {err}") from err
        except OutOfTimeError:
            # The session is over; who was right when it was loaded has its turns so far.
            for each in self._contestants:
                each.stopped = True
            return None
        finally:
            one.run_sec += time.perf_counter() - begin
        if not isinstance(answer, Failure):
            return answer
        if answer.status is CostStatus.UNKNOWN:
            raise PlaceLostError(answer.reason)
        one.failure = Cost(answer.status, reason=answer.reason)
        if answer.replace:
            raise _BeginAnew
        return None


def _for_whole_models(config: MeasureConfig) -> MeasureConfig:
    return replace(
        config_of_turns(config),
        run_timeout_sec=MODEL_TIMEOUT_SEC,
        memory_limit_bytes=4 * config.memory_limit_bytes,
        cuda=replace(config.cuda, run_timeout_sec=MODEL_TIMEOUT_SEC),
    )
