"""What a candidate costs, and who says so."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collage.backends.contract import BackendTarget
    from collage.cost.workload.workload import Workload


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

    @classmethod
    def of_samples(cls, samples_sec: Sequence[float]) -> Cost:
        """The valid cost of what was measured."""
        low, median, high = np.percentile(np.asarray(samples_sec), (10, 50, 90))
        return cls(CostStatus.VALID, float(median), float(high - low) / 2, tuple(samples_sec))

    @property
    def is_valid(self) -> bool:
        """Whether it is a time."""
        return self.status is CostStatus.VALID


@dataclass(frozen=True)
class Overheads:
    """What crossing into partitions costs besides the partitions themselves.

    Attributes
    ----------
    call_sec : float
        One call of a module that does nothing: part of every stand-alone measurement.
    partition_sec : float
        What one more partition that does next to nothing adds to a call: on a CPU allocation and
        dispatch, on a GPU the gap between two kernels. Also part of that partition's own
        measurement; a lower bound for any partition.
    """

    call_sec: float
    partition_sec: float


class CostModel(ABC):
    """Answers what workloads cost. Implementations: measured, table, roofline."""

    @abstractmethod
    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        """The cost of each workload on the target at the same position; never raises for one.

        Parameters
        ----------
        workloads : sequence of Workload
            What is asked about.
        targets : sequence of BackendTarget
            What each would run on, by position.
        """

    def overheads(self, target: BackendTarget) -> Overheads:
        """What every call and every partition adds; nothing, unless a model knows better."""
        return Overheads(0.0, 0.0)
