"""What takes part in a comparison of whole partitionings, and how it did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm

from collage.backends.contract.errors import MeasurementError
from collage.cost.base import Cost
from collage.cost.call_times import CallTime
from collage.cost.contest import Rounds
from collage.cost.measure.replay import NO_TIME
from collage.report import MemoryUse
from collage.search.candidates import Candidate
from collage.search.partitioning import Partitioning

FURTHER = "cover:"
"""What the names of the search's further covers begin with."""


@dataclass(frozen=True)
class Contender:
    """A partitioning that takes part, under a name for the report.

    Examples
    --------
    >>> Contender("greedy", Partitioning(())).name
    'greedy'
    """

    name: str
    partitioning: Partitioning

    @property
    def is_further(self) -> bool:
        """Whether it is one more cover of the search's, which takes part where there is time."""
        return self.name.startswith(FURTHER)


def everybody() -> float:
    """More than there ever are."""
    return math.inf


@dataclass(frozen=True)
class Seen:
    """What trying out a whole model took, or several at once.

    Attributes
    ----------
    compile_sec : float
        To compile them.
    check_sec : float
        To load, check and briefly time each.
    models : int
        How many were compiled.

    Examples
    --------
    >>> Seen(compile_sec=4.0, check_sec=1.5).compile_sec
    4.0
    """

    compile_sec: float
    check_sec: float
    models: int = 1


@dataclass(frozen=True)
class Lowered:
    """A contender's partitioned module.

    Attributes
    ----------
    key : str
        Equal for contenders that came out the same.
    memory : MemoryUse or None
        What it takes; None of what was not even lowered.
    """

    contender: Contender
    module: tvm.IRModule
    key: str
    memory: MemoryUse | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Evaluation(Lowered):
    """How a contender did.

    Attributes
    ----------
    cost : Cost
        Invalid with a reason when it cannot be compiled or computes something else.
    largest_error : float or None
        Difference to the reference's outputs, relative to the largest value of each; None when it
        did not run.
    rounds : Rounds or None
        Its part in the contest with the others, where they were timed.
    calls : tuple of CallTime
        Those inside the running model, in their order; none where they cannot be seen.

    Examples
    --------
    >>> from collage.cost import CostStatus
    >>> contender = Contender("search", Partitioning(()))
    >>> cost = Cost(CostStatus.BUILD_FAILED, reason="no such instruction")
    >>> Evaluation(contender, tvm.IRModule(), "2d71", cost).cost.is_valid
    False
    """

    cost: Cost
    largest_error: float | None = None
    rounds: Rounds | None = None
    calls: tuple[CallTime, ...] = ()

    @classmethod
    def of(
        cls,
        lowered: Lowered,
        cost: Cost,
        largest_error: float | None = None,
        rounds: Rounds | None = None,
    ) -> Evaluation:
        """The evaluation of a lowered contender.

        Parameters
        ----------
        lowered : Lowered
            What was evaluated.
        cost : Cost
            What it takes, or why it does not run.
        largest_error : float, optional
            How far off it was.
        rounds : Rounds, optional
            Its part in a contest.

        Returns
        -------
        Evaluation
            With what the lowered module takes of memory.
        """
        return cls(
            *(lowered.contender, lowered.module, lowered.key, cost, largest_error, rounds),
            memory=lowered.memory,
        )

    @classmethod
    def without_time(cls, contender: Contender) -> Evaluation:
        """Of a contender that there was no time for: it was not even lowered."""
        return cls(contender, tvm.IRModule(), "", NO_TIME)


@dataclass(frozen=True)
class Refusal:
    """A partition that is not to be had from its backend, and why: the library refuses it, or what
    it computes is wrong.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> Refusal(Candidate(0b1, onednn), "off by 0.3 of its largest value").candidate.backend
    'onednn'
    """

    candidate: Candidate
    reason: str


class NothingRunsError(MeasurementError):
    """No partitioning runs correctly.

    Parameters
    ----------
    message : str
        One line.
    evaluations : sequence of Evaluation
        How each failed; kept as an attribute.
    """

    def __init__(self, message: str, evaluations: Sequence[Evaluation]) -> None:
        super().__init__(message, value=message)
        self.evaluations = tuple(evaluations)
