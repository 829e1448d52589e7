"""What a candidate costs, and who says so."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from collage.cost.contest.interval import median_interval

if TYPE_CHECKING:
    from collage.backends.contract import BackendTarget
    from collage.cost.contest import Exchange
    from collage.cost.workload.workload import Workload


_CONFIDENCE = 0.95
_FEWEST = 6
"""Samples that give an interval of that confidence."""


class CostStatus(enum.Enum):
    """Whether a cost is a measurement, missing, or the record of a failure.

    Examples
    --------
    >>> CostStatus("timed_out") is CostStatus.TIMED_OUT
    True
    """

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
    others : float
        The share of the processors' time that other programs had meanwhile; 0 where it is not
        known, as in logs of earlier releases, or does not matter.

    Examples
    --------
    >>> cost = Cost.of_samples([2e-3, 1e-3, 3e-3])
    >>> cost.is_valid, cost.median_sec
    (True, 0.002)
    >>> Cost(CostStatus.CRASHED, reason="the candidate died of SIGSEGV").median_sec
    inf
    """

    status: CostStatus
    median_sec: float = math.inf
    spread_sec: float = 0.0
    samples_sec: tuple[float, ...] = ()
    reason: str = ""
    others: float = 0.0

    @classmethod
    def of_samples(cls, samples_sec: Sequence[float], others: float = 0.0) -> Cost:
        """The valid cost of what was measured.

        Parameters
        ----------
        samples_sec : sequence of float
            At least one.
        others : float
            What other programs had of the processors meanwhile.

        Returns
        -------
        Cost
            With median and spread.
        """
        low, median, high = np.percentile(np.asarray(samples_sec), (10, 50, 90))
        spread_sec = float(high - low) / 2
        return cls(CostStatus.VALID, float(median), spread_sec, tuple(samples_sec), others=others)

    def times(self, factor: float) -> Cost:
        """So many times as long, spread and samples too; the same where it is no time.

        Examples
        --------
        >>> Cost.of_samples([1.0, 2.0, 3.0]).times(0.5).median_sec
        1.0
        """
        samples_sec = tuple(factor * second for second in self.samples_sec)
        median_sec, spread_sec = factor * self.median_sec, factor * self.spread_sec
        return replace(self, median_sec=median_sec, spread_sec=spread_sec, samples_sec=samples_sec)

    @property
    def is_valid(self) -> bool:
        """Whether it is a time."""
        return self.status is CostStatus.VALID

    @property
    def interval_sec(self) -> tuple[float, float] | None:
        """What holds the true median with 95 %, by order statistics; None below six samples.

        It says how much the samples of one measurement differ, nothing of what another process
        would have measured.

        Examples
        --------
        >>> Cost.of_samples([1.0, 1.2, 1.1, 1.4, 1.3, 1.0, 1.1]).interval_sec
        (1.0, 1.4)
        >>> Cost.of_samples([1.0, 1.2]).interval_sec is None
        True
        """
        if len(self.samples_sec) < _FEWEST:
            return None
        interval = median_interval(self.samples_sec, _CONFIDENCE)
        return interval.low, interval.high


@dataclass(frozen=True)
class Clocks:
    """A device's clock frequencies at one moment, in MHz."""

    sm_mhz: int
    memory_mhz: int


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

    Examples
    --------
    >>> Overheads(call_sec=2e-6, partition_sec=3e-7).partition_sec
    3e-07
    """

    call_sec: float
    partition_sec: float


@dataclass(frozen=True)
class Answer:
    """What became known of a workload, for who asks :meth:`CostModel.stream`.

    Attributes
    ----------
    workload : Workload
        As it was asked about.
    target : BackendTarget
        What it would run on.
    cost : Cost
        Never unknown.

    Examples
    --------
    >>> from tvm import relax
    >>> from tvm.target import Target
    >>> from collage.backends.contract import BackendTarget
    >>> from collage.cost.workload import Workload
    >>> from collage.testing import graph
    >>> relu = Workload.from_module(graph([(8, 8)], lambda _, x: relax.op.nn.relu(x)))
    >>> answer = Answer(relu, BackendTarget.of("tvm", Target("llvm")), Cost.of_samples([1e-6]))
    >>> answer.cost.median_sec
    1e-06
    """

    workload: Workload
    target: BackendTarget
    cost: Cost


@dataclass(frozen=True)
class Asked:
    """What is to be found out.

    Attributes
    ----------
    urgent : sequence of (Workload, BackendTarget)
        What is waited for, the most important first; some of it may have been asked before.
    others : sequence of (Workload, BackendTarget)
        For who would be idle.

    Examples
    --------
    >>> Asked().urgent
    ()
    """

    urgent: Sequence[tuple[Workload, BackendTarget]] = ()
    others: Sequence[tuple[Workload, BackendTarget]] = ()


Asking = Callable[[Sequence[Answer], int], Asked | None]
"""Told what became known since it was last asked, and for how many workloads there is room. None:
nothing is wanted any longer, what is under way included."""


class CostModel(ABC):
    """Says what workloads cost. Implementations: measured, table, roofline.

    Examples
    --------
    >>> class Flops(CostModel):
    ...     def estimate(self, workloads, targets):
    ...         return [Cost(CostStatus.VALID, workload.flops / 1e11) for workload in workloads]
    >>> Flops().estimate([], [])
    []
    """

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

        Returns
        -------
        list of Cost
            In the order of the workloads; one that failed or was not measured says why.
        """

    @property
    def times_together(self) -> bool:
        """Whether :meth:`together` may say anything; no, unless a model measures."""
        return False

    def together(
        self,
        workloads: Sequence[Workload],
        targets: Sequence[BackendTarget],
        exchanges: Sequence[Exchange],
        patience_sec: float,
    ) -> list[Cost] | None:
        """The costs of what is timed together, in the same rounds; None, unless a model times.

        Parameters
        ----------
        workloads : sequence of Workload
            Distinct ones, whose costs are known.
        targets : sequence of BackendTarget
            What each would run on, by position.
        exchanges : sequence of Exchange
            Of these positions: what is to be decided.
        patience_sec : float
            After so many seconds few rounds must do.

        Returns
        -------
        list of Cost or None
            In the order of the workloads, unknown ones of what could not take part. None where
            there is no time.
        """
        return None

    def recorded(self, workload: Workload, target: BackendTarget) -> Cost | None:
        """What is known without measuring; nothing, unless a model keeps records.

        Parameters
        ----------
        workload : Workload
            What is asked about.
        target : BackendTarget
            What it would run on.

        Returns
        -------
        Cost or None
            None where nothing is known.
        """
        return None

    def overheads(self, target: BackendTarget) -> Overheads:
        """What every call and every partition adds; nothing, unless a model knows better."""
        return Overheads(0.0, 0.0)

    def stream(  # noqa: B027 (whoever asks then goes on by itself)
        self, targets: Sequence[BackendTarget], ask: Asking
    ) -> None:
        """Find out costs for as long as somebody asks, who is asked as soon as anybody who finds
        out costs would be idle; nothing, where workloads are asked about in turn.

        What became known is an estimate from then on, and the estimate counts: it may have been
        found out once more.

        Parameters
        ----------
        targets : sequence of BackendTarget
            All that may be asked about; at least one.
        ask : callable
            See :data:`Asking`; called in this thread.
        """

    def at_once(self, target: BackendTarget) -> int:
        """Workloads with which nobody who finds out costs is idle; 1 if they are asked in turn."""
        return 1
