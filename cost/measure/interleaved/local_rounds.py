"""Times candidates against each other in one warm process, in rounds that all of them play.

All are loaded and checked first, and stay loaded. So a turn is a few milliseconds, and whatever
befalls the machine for a second befalls all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from collage.cost.base import Cost, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.contest import ContestRule, Load, Played, play, shuffled
from collage.cost.device.load import LoadMeter
from collage.cost.measure.runner import PlayedTogether, RunJob
from collage.cost.processes.failure import WorkerFailure
from collage.cost.processes.kills import Kills
from collage.cost.processes.messages import (
    A,
    Check,
    Checked,
    Failure,
    Request,
    Time,
    Timed,
)
from collage.cost.processes.messages import Load as LoadLibrary
from collage.cost.processes.worker_process import WorkerProcess

_SAMPLE_SEC = 0.004
_WARM_SEC = 0.002
_SINGLE_CALLS = 5
"""Of a turn: it comes back in every round, and what is short is over before anything changes."""


def config_of_part_turns(config: MeasureConfig) -> MeasureConfig:
    """How a turn of a candidate is measured.

    Examples
    --------
    >>> config_of_part_turns(MeasureConfig()).repeat
    1
    """
    single = min(config.cuda.repeat, _SINGLE_CALLS)
    cuda = replace(config.cuda, repeat=single, min_repeat=single, warmup_sec=_WARM_SEC)
    return replace(
        config,
        repeat=1,
        min_repeat=1,
        min_repeat_sec=min(config.min_repeat_sec, _SAMPLE_SEC),
        warmup_sec=min(config.warmup_sec, _WARM_SEC),
        cuda=cuda,
    )


class LocalRounds:
    """One contest of candidates on a device of this machine.

    Parameters
    ----------
    worker : callable
        Gives a process that is ready; a new one when the last one is dead.
    close : callable
        Ends it.
    config : MeasureConfig
        Of what is timed alone.
    limit_sec : float
        For loading and checking one candidate, and for a turn.
    """

    def __init__(
        self,
        worker: Callable[[], WorkerProcess],
        close: Callable[[], None],
        config: MeasureConfig,
        limit_sec: float,
    ) -> None:
        self._worker, self._close = worker, close
        self._config = config_of_part_turns(config)
        self._limit_sec = limit_sec

    def play(self, jobs: Sequence[RunJob], rule: ContestRule, seed: str) -> PlayedTogether:
        """See :meth:`collage.cost.measure.runner.Runner.play`; the device is held.

        Whoever takes the process along is out, and the others begin anew. Nothing is said of it:
        another one may have corrupted the process.

        Parameters
        ----------
        jobs, rule, seed
            As it takes them.

        Returns
        -------
        PlayedTogether
            A row for each job.
        """
        failures: list[Cost | None] = [None] * len(jobs)
        kills = Kills()  # Of all together: who was meant nobody knows.
        while True:
            stage = _Stage(self._worker(), jobs, failures, self._config, self._limit_sec)
            try:
                return PlayedTogether(stage.play(rule, seed), tuple(failures))
            except WorkerFailure as err:
                self._close()
                if not (err.was_killed and kills.is_asked_again(err.status)):
                    reason = f"among others the candidate {err.reason}"
                    failures[stage.at] = Cost(CostStatus.UNKNOWN, reason=reason)
            except BaseException:
                # An interrupt or a deadline: the answer under way must not meet the next request.
                self._close()
                raise


class _Stage:
    """One attempt, in one process; a failure that is told by it is the candidate's own."""

    def __init__(
        self,
        worker: WorkerProcess,
        jobs: Sequence[RunJob],
        failures: list[Cost | None],
        config: MeasureConfig,
        limit_sec: float,
    ) -> None:
        self.at = 0
        self._worker, self._jobs, self._failures = worker, jobs, failures
        self._config, self._limit_sec = config, limit_sec
        self._meter = LoadMeter([worker.pid])

    def play(self, rule: ContestRule, seed: str) -> Played:
        for number, job in enumerate(self._jobs):
            self._ask(
                number, LoadLibrary(job.library, (job.sample,), self._config, str(number)), Checked
            )
        self._meter.read()
        played = play(self, len(self._jobs), rule, order=shuffled(seed))
        for number in range(len(self._jobs)):
            self._ask(number, Check(str(number)), Checked)
        return played

    def turn(self, player: int, number: int) -> float | None:
        answer = self._ask(player, Time(str(player), as_part=True), Timed)
        return None if answer is None else statistics.median(answer.samples_sec)

    def is_out(self, player: int) -> bool:
        return self._failures[player] is not None

    def is_cut_short(self) -> bool:
        return False

    def load(self) -> Load:
        return self._meter.read()

    def _ask(self, number: int, request: Request, kind: type[A]) -> A | None:
        if self._failures[number] is not None:
            return None
        self.at = number
        self._worker.send(request, self._limit_sec)
        answer = self._worker.receive(kind)
        if not isinstance(answer, Failure):
            return answer
        if answer.replace:
            raise WorkerFailure(answer.status, answer.reason)
        self._failures[number] = Cost(answer.status, reason=answer.reason)
        return None
