"""What the log lacks of what somebody asks for, for as long as they ask."""

from __future__ import annotations

from collage.cost.base import Answer, Asking
from collage.cost.database.keys import KeyMaker
from collage.cost.database.record import RecordKey
from collage.cost.measure.feed import Request
from collage.cost.measure.replay import NO_TIME, Question, RecordLookup


class MissesAsked:
    """Asks what is to be measured; what the log holds is answered at once.

    A :data:`~collage.cost.measure.feed.MoreQuestions` over an
    :data:`~collage.cost.base.Asking`.

    Parameters
    ----------
    keys : KeyMaker
        Names workloads in the log.
    lookup : RecordLookup
        The log.
    ask : callable
        Told what became known, and for how many workloads there is room.
    """

    def __init__(self, keys: KeyMaker, lookup: RecordLookup, ask: Asking) -> None:
        self._keys, self._lookup, self._ask = keys, lookup, ask
        self._opened: dict[RecordKey, Question] = {}

    def __call__(self, room: int) -> Request | None:
        """What is to be measured besides; None once nobody asks any longer."""
        found: dict[RecordKey, Question] = {}
        while True:
            asked = self._ask(self._answers(), room - len(found))
            if asked is None:
                return None
            urgent = {self._keys.partition(*question): question for question in asked.urgent}
            every = urgent | {self._keys.partition(*other): other for other in asked.others}
            fresh = {key: question for key, question in every.items() if key not in self._opened}
            self._opened.update(fresh)
            misses = self._lookup.misses(list(fresh), list(fresh.values()))
            found |= misses
            if len(misses) == len(fresh):
                return Request(found, urgent.keys())

    def _answers(self) -> list[Answer]:
        """What became known of what was asked for; it is not looked for again."""
        keys = list(self._opened)
        costs = zip(keys, self._lookup.costs(keys), strict=True)
        known = {key: cost for key, cost in costs if cost is not NO_TIME}
        return [Answer(*self._opened.pop(key), cost) for key, cost in known.items()]
