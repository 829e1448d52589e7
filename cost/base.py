"""What a candidate costs, and who says so."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collage.backends.base import BackendTarget
    from collage.cost.workload import Workload


class CostStatus(enum.Enum):
    """Whether a cost is a measurement, missing, or the record of a failure."""

    VALID = "valid"
    UNKNOWN = "unknown"
    """Nothing is known: not in the log, and there was no time to measure."""
    BUILD_FAILED = "build_failed"
    RUN_FAILED = "run_failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"


@dataclass(frozen=True)
class Cost:
    """Seconds per call of one workload on one target, with its spread, or why there is none.

    Attributes
    ----------
    median_sec : float
        Median over the samples; ``inf`` unless valid.
    spread_sec : float
        Half the distance between the 10th and 90th percentile of the samples.
    samples_sec : tuple of float
        One mean time per repetition.
    reason : str
        For an invalid cost, one line that says what happened.
    """

    status: CostStatus
    median_sec: float = math.inf
    spread_sec: float = 0.0
    samples_sec: tuple[float, ...] = ()
    reason: str = ""

    @property
    def is_valid(self) -> bool:
        return self.status is CostStatus.VALID


class CostModel(ABC):
    """Answers what workloads cost. Implementations: measured, table (tests and replay)."""

    @abstractmethod
    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        """The cost of each workload on the target at the same position; never raises for one."""
