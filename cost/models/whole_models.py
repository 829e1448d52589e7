"""The end-to-end times of whole models: found in the log, or measured and recorded there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import ReplayMissError
from collage.cost.base import Cost
from collage.cost.database.keys import KeyMaker
from collage.cost.database.record import END_TO_END, Record, RecordKey
from collage.cost.deadline import NEVER, Deadline
from collage.cost.measure.replay import NO_TIME, RecordLookup
from collage.cost.measure.runner import RunResult
from collage.cost.measure.scheduler import Measurer
from collage.cost.measure.whole_models.model_builder import (
    ModelDone,
    ModelJob,
    ModelResult,
    nobody_waits,
)
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion

_ALONE = "5 rounds"
"""How whole models are asked for that cannot be compiled: they take no part in any contest. Earlier
releases asked so for all of them."""

_CUT_SHORT = "some rounds"


class WholeModels:
    """Whole models on one kind of device.

    Parameters
    ----------
    lookup : RecordLookup
        The log.
    keys : KeyMaker
        Of records of this device.
    measurer : Measurer
        Compiles, times, and records.
    replay_only : bool
        Whether it is an error that the log lacks one,
    deadline : Deadline
        unless there is one: then it is unknown.
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

    def recorded(self, question: EndToEndQuestion) -> list[Record] | None:
        """What the log holds of models that were timed against each other.

        Parameters
        ----------
        question : EndToEndQuestion
            The models to compare, and on what.

        Returns
        -------
        list of Record or None
            In the order given; None unless the log holds all of them, for times of different hours
            do not compare.

        Raises
        ------
        ReplayMissError
            Naming the first model that the log does not hold.
        """
        models, look_up = question.models, self._lookup.peek
        alone = look_up(self._keys_of(question, _ALONE))
        failed = [one is not None and not one.cost.is_valid for one in alone]
        running = [model for model, out in zip(models, failed, strict=True) if not out]
        paired = look_up(self._keys_of(question))
        if None in paired and running:
            against = look_up(self._keys_of(replace(question, models=running)))
            rest = iter(against)
            paired = [one if out else next(rest) for one, out in zip(alone, failed, strict=True)]
        found = [one for one in paired if one is not None]
        if len(found) < len(models) and self._replay_only:
            found = self._piecemeal(question, paired, alone, limited=self._deadline.is_limited)
        return self._lookup.replayed(found) if len(found) == len(models) else None

    def _piecemeal(
        self,
        question: EndToEndQuestion,
        paired: Sequence[Record | None],
        alone: Sequence[Record | None],
        *,
        limited: bool,
    ) -> list[Record]:
        """What the log of an earlier release holds, or one of a search that was cut short."""
        keys = self._keys_of(question, _CUT_SHORT)
        cut = self._lookup.peek(keys) if limited else [None] * len(keys)
        # Of other contests, where fewer take part now than did then.
        known = self._lookup.database.records([model.key for model in question.models])
        apart = {_contest_apart(record.key): record for record in known}
        other = [apart.get(_contest_apart(key)) for key in self._keys_of(question)]
        found = []
        rows = zip(question.models, keys, paired, alone, other, cut, strict=True)
        for model, key, *records in rows:
            record = next((one for one in records if one is not None), None)
            if record is None and not limited:
                raise ReplayMissError(
                    f"the log holds no end-to-end time of '{model.description}'", value=model.key
                )
            found.append(record or Record(key, NO_TIME))
        return found

    def compile(
        self,
        jobs: Sequence[ModelJob],
        targets: Sequence[BackendTarget],
        deadline: Deadline = NEVER,
        done: ModelDone = nobody_waits,
        sharing: Deadline = NEVER,
    ) -> list[ModelResult]:
        """Compile models for :meth:`measure`, several at a time.

        Parameters
        ----------
        jobs, targets, deadline, done, sharing
            As :meth:`ModelScheduler.compile` takes them.

        Returns
        -------
        list of ModelResult
            In the order of the jobs.

        Raises
        ------
        MeasurementError
            When no worker process can be started.
        """
        return self._measurer.models.compile(jobs, targets, deadline, done, sharing)

    def record_failures(self, question: EndToEndQuestion, costs: Sequence[Cost]) -> None:
        """Record models that cannot be timed; what is unknown is not kept.

        Parameters
        ----------
        question : EndToEndQuestion
            These models alone, asked for as they would be with others.
        costs : sequence of Cost
            Of each: why not.
        """
        if not costs:
            return
        results = [RunResult(cost) for cost in costs]
        self._measurer.models.record(question, self._keys_of(question, _ALONE), results)

    def measure(
        self,
        question: EndToEndQuestion,
        libraries: Sequence[Path],
        deadline: Deadline = NEVER,
        sharing: Deadline = NEVER,
    ) -> list[Record]:
        """Time models against each other, alternating between them, and record what came out.

        Parameters
        ----------
        question, libraries
            As :meth:`ModelTimer.measure` takes them.
        deadline : Deadline, optional
            The turns until then count; what had none is unknown, and not in the log.
        sharing : Deadline, optional
            As :meth:`ModelScheduler.measure` takes it.

        Returns
        -------
        list of Record
            In the order given; each with its cost and its largest error.
        """
        results = self._measurer.models.measure(question, libraries, deadline, sharing)
        # What was cut short is no answer to whoever asks for all the rounds.
        cut_short = question.provisional or deadline.is_up
        keys = self._keys_of(question, _CUT_SHORT if cut_short else "")
        return self._measurer.models.record(question, keys, results)

    def _keys_of(self, question: EndToEndQuestion, how: str = "") -> list[RecordKey]:
        first = question.samples[0]
        shapes = f"{_shapes(first.inputs)} -> {_shapes(first.expected)}"
        data = f"; data {question.data}" if question.data else ""
        paired = f"{question.rounds} paired rounds{data}, contest {question.contest}"
        tensors = f"{shapes}; {f'{how}{data}' if how else paired}"
        return [self._keys.make(END_TO_END, m.key, tensors, m.targets) for m in question.models]


def _contest_apart(key: RecordKey) -> RecordKey:
    """The key of a whole model, whoever it was timed against."""
    return replace(key, tensors=key.tensors.partition(", contest ")[0])


def _shapes(arrays: Sequence[NDArray[Any]]) -> str:
    return ", ".join(f"{'x'.join(map(str, a.shape)) or 'scalar'}:{a.dtype.name}" for a in arrays)
