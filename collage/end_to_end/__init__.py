"""Whole models against each other, which decides what the user gets.

``evaluation`` says what takes part and what comes out, ``_base`` is the protocol of a comparison;
``measured`` times compiled models in alternation, ``estimated`` adds up costs without a device.
``baselines`` makes the partitionings that a search has to beat; ``repair`` takes out of all of them
what a library refuses to compile or computes wrongly; ``culprits`` finds the latter; ``verdict``
says who wins, and ``memory`` what each takes.
"""

from collage.end_to_end._base import EndToEndComparison
from collage.end_to_end.baselines import baselines, check_strategy, taking_part, without_search
from collage.end_to_end.estimated import EstimatedComparison
from collage.end_to_end.evaluation import (
    FURTHER,
    Contender,
    Evaluation,
    NothingRunsError,
    Refusal,
    Seen,
)
from collage.end_to_end.measured import MeasuredComparison
from collage.end_to_end.memory import memory_of
from collage.end_to_end.repair import PartitionRepair
from collage.end_to_end.verdict import Verdict, best, decide

__all__ = [
    "FURTHER",
    "Contender",
    "EndToEndComparison",
    "EstimatedComparison",
    "Evaluation",
    "MeasuredComparison",
    "NothingRunsError",
    "PartitionRepair",
    "Refusal",
    "Seen",
    "Verdict",
    "baselines",
    "best",
    "check_strategy",
    "decide",
    "memory_of",
    "taking_part",
    "without_search",
]
