"""Costs of candidates that were timed together: found in the log, or measured and recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from collage.backends.contract import BackendTarget
from collage.cost.base import Cost, CostStatus
from collage.cost.contest import Exchange
from collage.cost.database.keys import KeyMaker
from collage.cost.database.record import TOGETHER, RecordKey
from collage.cost.deadline import Deadline
from collage.cost.measure.interleaved.together import TogetherQuestion
from collage.cost.measure.replay import RecordLookup
from collage.cost.measure.scheduler import Measurer
from collage.cost.workload.workload import Workload


class Together:
    """Contests of candidates on one kind of device.

    Parameters
    ----------
    lookup : RecordLookup
        The log.
    keys : KeyMaker
        Of records of this device.
    measurer : Measurer
        Times them.
    replay_only : bool
        Whether nothing is measured.
    deadline : Deadline
        Nothing is after it.
    """

    def __init__(
        self,
        lookup: RecordLookup,
        keys: KeyMaker,
        measurer: Measurer,
        replay_only: bool,
        deadline: Deadline,
    ) -> None:
        self._lookup, self._keys, self._measurer = lookup, keys, measurer
        self._replay_only, self._deadline = replay_only, deadline

    def costs(
        self,
        workloads: Sequence[Workload],
        targets: Sequence[BackendTarget],
        exchanges: Sequence[Exchange],
        patience_sec: float,
    ) -> list[Cost] | None:
        """See :meth:`collage.cost.base.CostModel.together`.

        Parameters
        ----------
        workloads, targets, exchanges, patience_sec
            As it takes them.

        Returns
        -------
        list of Cost or None
            In the order of the workloads; None where nothing is known and nothing was measured.
        """
        questions = list(zip(workloads, targets, strict=True))
        alone = [self._keys.partition(workload, target) for workload, target in questions]
        contest = _contest(alone)
        keys = [
            self._keys.partition(workload, target, TOGETHER, contest)
            for workload, target in questions
        ]
        found = self._lookup.peek(keys)
        known = [record for record in found if record is not None]
        if known:
            self._lookup.replayed(known)
            return [_UNKNOWN if record is None else record.cost for record in found]
        if self._replay_only or self._deadline.is_up or patience_sec <= 0.0:
            return None
        question = TogetherQuestion(
            dict(zip(alone, questions, strict=True)), tuple(exchanges), contest, patience_sec
        )
        results = self._measurer.measure_together(question)
        if results is None:
            return None
        for key, (workload, target), result in zip(keys, questions, results, strict=True):
            self._measurer.recorder.keep(key, result, workload.describe(), target.name)
        return [result.cost for result in results]


_UNKNOWN = Cost(CostStatus.UNKNOWN, reason="took no part")


def _contest(keys: Sequence[RecordKey]) -> str:
    """Names those that are timed together, in whatever order."""
    texts = sorted(f"{key.workload} {key.target}" for key in keys)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
