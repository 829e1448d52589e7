"""Whole models in a contest, wherever they are timed: their turns, and what came of each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from collage.cost.base import Clocks, Cost
from collage.cost.call_times import CallTime
from collage.cost.config import MeasureConfig
from collage.cost.contest import Load, Played, Rounds, disturbed_rounds, to_discard, without
from collage.cost.measure.replay import NO_TIME
from collage.cost.measure.runner import RunResult
from collage.cost.measure.whole_models.model_timer import WholeModel
from collage.cost.processes.messages import Timed
from collage.cost.progress import ProgressCallback, ProgressEvent

_SAMPLES = 4
_FEWEST_SAMPLES = 2
_TURN_SEC = 0.04
"""Of one turn. Many short rounds tell more than few long ones, but each turn begins with a call
that finds nothing in the caches."""

MODEL_TIMEOUT_SEC = 300.0
"""For loading a whole model and for one turn: minutes for one without any schedule."""


def config_of_turns(config: MeasureConfig) -> MeasureConfig:
    """How a turn is measured.

    Examples
    --------
    >>> config_of_turns(MeasureConfig()).repeat
    4
    """
    return replace(
        config,
        repeat=min(config.repeat, _SAMPLES),
        min_repeat=min(config.min_repeat, _FEWEST_SAMPLES),
        timing_budget_sec=min(config.timing_budget_sec, _TURN_SEC),
    )


@dataclass
class Contestant:
    """A whole model, and what is known of it so far.

    Attributes
    ----------
    model : WholeModel
        Which.
    failure : Cost or None
        Why it is out.
    stopped : bool
        Whether the time was up.
    first_call_sec, largest_error, run_sec, clocks, calls
        As of :class:`~collage.cost.measure.runner.RunResult`.
    """

    model: WholeModel
    failure: Cost | None = None
    stopped: bool = False
    first_call_sec: float = 0.0
    largest_error: float = 0.0
    run_sec: float = 0.0
    clocks: Clocks | None = None
    calls: tuple[CallTime, ...] = ()

    @property
    def is_out(self) -> bool:
        """Whether it plays no longer."""
        return self.failure is not None or self.stopped


C = TypeVar("C", bound=Contestant)


class Turns(Generic[C]):
    """The stage of a contest: models, one of which runs at a time.

    Parameters
    ----------
    contestants : sequence of Contestant
        Those that take part.
    ask : callable
        Has one of them timed; None when it failed.
    load : callable
        What the machine did besides, since the last time that this was asked.
    rounds : int
        How many there are to be, for messages.
    progress : callable
        Informed of each turn.
    """

    def __init__(
        self,
        contestants: Sequence[C],
        ask: Callable[[C], Timed | None],
        load: Callable[[], Load],
        rounds: int,
        progress: ProgressCallback,
    ) -> None:
        self._contestants = contestants
        self._ask = ask
        self._load = load
        self._rounds = rounds
        self._progress = progress

    def turn(self, player: int, number: int) -> float | None:
        """See :class:`collage.cost.contest.play.Stage`.

        Parameters
        ----------
        player, number : int
            Whose, in which round.
        player : int
            Which contestant.
        number : int
            Of the round, from 0.

        Returns
        -------
        float or None
            None when the contestant failed.
        """
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
        """Whether one plays no longer."""
        return self._contestants[player].is_out

    def is_cut_short(self) -> bool:
        """Whether there is no time left."""
        return any(contestant.stopped for contestant in self._contestants)

    def load(self) -> Load:
        """What the machine did besides."""
        return self._load()


def results(contestants: Sequence[Contestant], played: Played, contest: str) -> list[RunResult]:
    """What came of each.

    Parameters
    ----------
    contestants : sequence of Contestant
        Those that took part.
    played : Played
        Their times.
    contest : str
        Names it, for the log.

    Returns
    -------
    list of RunResult
        In the order of the contestants; times are those of rounds that count.
    """
    pairs = list(zip(contestants, played.table, strict=True))
    right = [row for contestant, row in pairs if contestant.failure is None and any(row)]
    disturbed = disturbed_rounds(right, played.loads)
    discarded = to_discard(disturbed, played.loads)
    if not all(any(row) for row in without(right, discarded)):
        discarded = ()  # The time was up before there was anything better.
    others = tuple(load.others for load in played.loads)
    found = []
    for contestant, row in pairs:
        cost, rounds = contestant.failure or NO_TIME, None
        if contestant.failure is None and any(row):
            rounds = Rounds(contest, row, disturbed, discarded, others)
            cost = Cost.of_samples([sec for sec in rounds.counted if sec is not None])
        found.append(
            RunResult(
                cost,
                contestant.largest_error,
                contestant.first_call_sec,
                contestant.run_sec,
                contestant.clocks,
                rounds,
                contestant.calls,
            )
        )
    return found
