"""What is to be measured, handed out one at a time to whoever is free."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from collage.backends.contract.errors import CollageError
from collage.cost.database.record import RecordKey
from collage.cost.deadline import Deadline
from collage.cost.measure.places.comparing import Comparing
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import Question, RecordLookup
from collage.cost.measure.tuning import Tuning


@dataclass(frozen=True)
class Request:
    """What is to be measured besides what was asked for before.

    Attributes
    ----------
    questions : mapping of RecordKey to (Workload, BackendTarget)
        What the log does not hold, in this order.
    urgent : set of RecordKey
        What somebody waits for, some of it asked for before.
    """

    questions: Mapping[RecordKey, Question]
    urgent: Collection[RecordKey] = ()


MoreQuestions = Callable[[int], Request | None]
"""Told for how many workloads there is room; gives what is to be measured besides, or None once
nobody wants anything any longer, what is under way included."""

_TUNING_POLL_SEC = 0.2
_TUNING_SHARE = 0.6
"""Of the time left. What was chosen by then is to be built and timed."""

_ASKING_SHARE = 0.2
"""Of the time, at most, for thinking about what to measure: builders wait meanwhile."""


def no_more_questions(room: int) -> Request:
    """The :data:`MoreQuestions` of those who want nothing but what they asked for.

    Parameters
    ----------
    room : int
        For how many workloads.

    Returns
    -------
    Request
        For nothing.
    """
    return Request({})


class SettledError(CollageError):
    """Nobody wants what is still under way; not an error of anybody's."""


class Feed:
    """What is to be measured, and how much of it is under way; used by one thread but for ``done``.

    Parameters
    ----------
    questions : mapping of RecordKey to (Workload, BackendTarget)
        To begin with, in this order.
    more : callable
        Asked when something became known and builders or places would be idle.
    busy : int
        Workloads under way with which nobody is idle: there is room until then.
    most : int
        Workloads that may be under way.
    lookup : RecordLookup
        What others measured meanwhile is left out.
    recorder : Recorder
        Told how much is wanted.
    tuning : Tuning
        What is still being tuned waits.
    comparing : Comparing
        Says what must be measured again.
    deadline : Deadline
        Nothing is handed out after it.
    """

    def __init__(
        self,
        questions: Mapping[RecordKey, Question],
        more: MoreQuestions,
        busy: int,
        most: int,
        lookup: RecordLookup,
        recorder: Recorder,
        tuning: Tuning,
        comparing: Comparing,
        deadline: Deadline,
    ) -> None:
        self._waiting = list(questions.items())
        self._urgent: Collection[RecordKey] = ()
        self._more, self._busy, self._most = more, busy, most
        self._lookup, self._recorder = lookup, recorder
        self._tuning, self._comparing = tuning, comparing
        self._deadline = deadline
        self._begin = time.monotonic()
        self._again: set[RecordKey] = set()
        self._has_repeated = False
        self._handed_out = self._done = self._seen = 0
        self._ask_at = self._begin
        self._lock = threading.Lock()

    @property
    def is_ready(self) -> bool:
        """Whether there may be something to take."""
        has_room = self._under_way < self._most
        return self._may_ask or (has_room and self._first_ready() is not None)

    @property
    def is_over(self) -> bool:
        """Whether there will not be any more, once nothing is under way."""
        self._doubt()
        return not self._waiting and not self._has_news

    def pause(self) -> None:
        """Wait a moment for what keeps things from being taken."""
        if self._waiting:
            self._tuning.wait(_TUNING_POLL_SEC)
        else:
            time.sleep(max(0.0, self._ask_at - time.monotonic()))

    def is_urgent(self, key: RecordKey) -> bool:
        """Whether somebody waits for it, and not only for whatever is known next."""
        return key in self._urgent

    def done(self) -> None:
        """Something that was handed out is known, or set aside; any thread may say so."""
        with self._lock:
            self._done += 1

    @property
    def _has_news(self) -> bool:
        return self._done > self._seen

    @property
    def _under_way(self) -> int:
        return self._handed_out - self._done

    @property
    def _room(self) -> int:
        return self._busy - self._under_way - len(self._waiting)

    @property
    def _may_ask(self) -> bool:
        return self._has_news and self._room > 0 and time.monotonic() >= self._ask_at

    def take(self) -> tuple[RecordKey, Question] | None:
        """The next one to be built; None when there is none now.

        Raises
        ------
        OutOfTimeError
            When the time is up.
        SettledError
            When nobody wants what is under way.
        """
        self._deadline.check()
        self._tuning.close_after(self._begin + _TUNING_SHARE * (self._deadline.end - self._begin))
        self._doubt()
        self._ask()
        while self._under_way < self._most:
            index = self._first_ready()
            if index is None:
                return None
            key, question = self._waiting.pop(index)
            self._handed_out += 1
            if key in self._again or self._lookup.still_missing([key]):
                if key in self._again:
                    self._again.discard(key)
                    self._has_repeated = True
                self._comparing.ask({key: question})
                return key, question
            self.done()  # Another search has measured it meanwhile.
        return None

    def _first_ready(self) -> int | None:
        return next(
            (
                index
                for index, (_, question) in enumerate(self._waiting)
                if not self._tuning.is_under_way(*question)
            ),
            None,
        )

    def _doubt(self) -> None:
        """Measure again what a place has timed that is no longer like the others."""
        doubtful = self._comparing.take_doubtful()
        self._recorder.wanted += len(doubtful)
        self._again |= doubtful.keys()
        self._waiting += doubtful.items()

    def _ask(self) -> None:
        if not self._may_ask:
            return
        self._seen, begin = self._done, time.monotonic()
        asked = self._more(self._room)
        self._ask_at = begin + (time.monotonic() - begin) / _ASKING_SHARE
        if asked is None:
            # The answer may rest on what is measured again.
            self._waiting = [one for one in self._waiting if one[0] in self._again]
            self._more = no_more_questions
            if self._under_way and not self._waiting and not self._has_repeated:
                raise SettledError("nobody wants what is under way")
            return
        self._urgent = asked.urgent
        self._recorder.wanted += len(asked.questions)
        self._waiting[:0] = asked.questions.items()
