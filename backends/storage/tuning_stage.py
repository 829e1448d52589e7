"""The stage in which a backend finds out what runs its problems best, the same for all of them.

Questions are looked up in the store; what is missing is measured, by one process of the machine at
a time, and recorded. A strict replay measures nothing: what it does not find is an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from collage.backends.contract.errors import CodegenError
from collage.backends.storage.tuning_record import TuningRecord
from collage.backends.storage.tuning_store import TuningStore
from collage.backends.toolchain.cuda_toolkit import compute_capability

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")


def nobody_builds(question: object) -> None:
    """Tells nobody that a question is settled.

    Parameters
    ----------
    question : object
        Any.
    """


def telling_indices(
    questions: Sequence[Question], settled: Callable[[int], None]
) -> Callable[[Question], None]:
    """Tells of a settled question by the positions of all that ask it.

    Parameters
    ----------
    questions : sequence
        They may repeat.
    settled : callable
        Told of positions.

    Returns
    -------
    callable
        To be told of questions.

    Examples
    --------
    >>> telling_indices(["a", "b", "a"], print)("a")
    0
    2
    """
    places: dict[Question, list[int]] = defaultdict(list)
    for index, question in enumerate(questions):
        places[question].append(index)

    def tell(question: Question) -> None:
        for index in places[question]:
            settled(index)

    return tell


class TuningStage(ABC, Generic[Question, Answer]):
    """One backend's questions, how they are looked up and how they are measured.

    Parameters
    ----------
    store : TuningStore
        What was found before, and where findings go.
    arch : str
        What is compiled for.
    here : mapping or None
        Facts of the device of that architecture, as
        :meth:`~collage.backends.devices.DeviceKind.facts` gives them; None where it is not here.

    Examples
    --------
    >>> from pathlib import Path
    >>> class Algorithms(TuningStage[int, int]):
    ...     def key(self, question):
    ...         return {"rows": question}
    ...     def describe(self, question):
    ...         return f"{question} rows"
    ...     def read(self, question, record):
    ...         return record.result["algorithm"]
    ...     def measure(self, questions, failed):
    ...         print("times", questions)
    ...         for rows in questions:
    ...             self.record(rows, {"algorithm": rows % 8})
    ...         return {rows: rows % 8 for rows in questions}
    >>> gpu = {"name": "NVIDIA H200", "compute_capability": 90}
    >>> stage = Algorithms(TuningStore("mine", 1, Path("cache/kernels.jsonl")), "sm_90a", gpu)
    >>> stage.answers([64, 67])
    times [64, 67]
    {64: 0, 67: 3}
    >>> stage.answers([67])
    {67: 3}
    """

    replay_must_know = True
    """Whether a strict replay fails on what is not known. A backend whose answers follow from the
    question alone, no time being taken, may make them again."""

    def __init__(self, store: TuningStore, arch: str, here: Mapping[str, Any] | None) -> None:
        self.store, self.arch, self._here = store, arch, here
        self._settled: Callable[[Question], None] = nobody_builds

    @property
    def device(self) -> Mapping[str, Any] | None:
        """What is known of the device that answers are wanted for: of the one here, or of the one
        that was tuned on last; None where there is neither."""
        if self._here is not None:
            return self._here
        return self.store.device_elsewhere(compute_capability(self.arch))

    @property
    def can_measure(self) -> bool:
        """Whether that device is here."""
        return self._here is not None

    @abstractmethod
    def key(self, question: Question) -> Mapping[str, Any]:
        """All that the answer depends on and that is known without the device."""

    @abstractmethod
    def describe(self, question: Question) -> str:
        """The question in words, for messages."""

    @abstractmethod
    def read(self, question: Question, record: TuningRecord) -> Answer | None:
        """The answer that a finding of this key gives, or None where it leaves the question open.

        Parameters
        ----------
        question : Question
            What is asked.
        record : TuningRecord
            What was found.

        Returns
        -------
        Answer or None
            None where it has to be measured after all.
        """

    @abstractmethod
    def measure(
        self, questions: Sequence[Question], failed: dict[Question, CodegenError]
    ) -> Mapping[Question, Answer]:
        """Answer questions by trying things out; each answer is recorded as soon as it is there.

        Parameters
        ----------
        questions : sequence of Question
            Distinct ones, none of which the store answers; nobody else on this machine is at them.
            In a replay, which records nothing, only where ``replay_must_know`` is false.
        failed : dict
            Takes the reason for each question without an answer.

        Returns
        -------
        Mapping[Question, Answer]
            Without those that failed, which are in ``failed``.
        """

    def look_up(self, question: Question) -> Answer | None:
        """The answer that takes no measurement, or None."""
        device = self.device
        found = None if device is None else self.store.find(self.key(question), device)
        return None if found is None else self.read(question, found)

    def record(self, question: Question, result: Mapping[str, Any]) -> None:
        """Remember what was found.

        Parameters
        ----------
        question : Question
            What was asked.
        result : mapping
            As the log is to have it; :meth:`read` makes an answer of it.

        Raises
        ------
        LogError
            When the log or the cache cannot be written, or this is a replay.
        """
        device = self.device
        assert device is not None, "it has just been measured on"
        self.store.append(self.key(question), device, result)
        self._settled(question)

    def answers(
        self,
        questions: Iterable[Question],
        settled: Callable[[Question], None] = nobody_builds,
    ) -> dict[Question, Answer]:
        """The answer of each question; none where it is unknown and cannot be measured here.

        Parameters
        ----------
        questions : iterable
            They may repeat.
        settled : callable, optional
            Told of each question as soon as its answer is known, or that it has none.

        Returns
        -------
        dict
            By question.

        Raises
        ------
        CodegenError
            When a question has no answer; all others are answered and recorded then.
        ReplayMissError
            In a replay, when an answer is not known.
        """
        self._settled = settled
        known, failed = self.settle(questions)
        if failed:
            raise next(iter(failed.values()))
        return known

    def settle(
        self, questions: Iterable[Question]
    ) -> tuple[dict[Question, Answer], dict[Question, CodegenError]]:
        """The answers, and the reasons for those that failed.

        Raises
        ------
        ReplayMissError
            In a replay, when an answer is not known.
        """
        known, missing = self._look_up_all(dict.fromkeys(questions))
        failed: dict[Question, CodegenError] = {}
        if missing and self.store.replay:
            if self.replay_must_know:
                raise self.store.miss(self.describe(missing[0]), len(missing))
            if self.can_measure:
                known |= self.measure(missing, failed)
        elif missing and self.can_measure:
            # First what nobody else is at, then the rest, which is found then or nobody's any more.
            for patient in (False, True):
                keys = [self.key(question) for question in missing]
                with self.store.claim(keys, patient=patient) as held:
                    claims = list(zip(missing, held, strict=True))
                    found, open_questions = self._look_up_all(q for q, is_held in claims if is_held)
                    known |= found
                    if open_questions:
                        known |= self.measure(open_questions, failed)
                missing = [q for q, is_held in claims if not is_held]
                if not missing:
                    break
        return known, failed

    def _look_up_all(
        self, questions: Iterable[Question]
    ) -> tuple[dict[Question, Answer], list[Question]]:
        """What needs no measurement, and the questions that are left."""
        known: dict[Question, Answer] = {}
        missing = []
        for question in questions:
            answer = self.look_up(question)
            if answer is None:
                missing.append(question)
            else:
                known[question] = answer
                self._settled(question)
        return known, missing
