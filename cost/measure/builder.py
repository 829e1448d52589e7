"""The builder's contract: compile workloads, several at a time.

The role, and its name, are MetaSchedule's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from collage.backends.contract import BackendTarget
from collage.cost.base import CostStatus
from collage.cost.workload.workload import Workload


@dataclass(frozen=True)
class BuildJob:
    """A workload, the target to compile it for, and the folder for the result.

    Examples
    --------
    >>> from tvm import relax
    >>> from tvm.target import Target
    >>> from collage.testing import graph
    >>> workload = Workload.from_module(graph([(8, 8)], lambda _, x: relax.op.nn.relu(x)))
    >>> job = BuildJob(workload, BackendTarget.of("tvm", Target("llvm")), Path("work/0"))
    >>> job.workload.describe()
    'relu 8x8'
    """

    workload: Workload
    target: BackendTarget
    folder: Path


@dataclass(frozen=True)
class BuildResult:
    """A library on disk with its test data in ``inputs/`` and ``expected/``, or why there is none.

    Attributes
    ----------
    status : CostStatus
        ``VALID`` when built; ``UNKNOWN`` when whoever built it was killed by others, again and
        again.
    reason : str
        One line, when not built.
    library : Path or None
        The linked shared library.
    build_sec : float
        Wall time in the worker, the reference's evaluation included.

    Examples
    --------
    >>> BuildResult(CostStatus.BUILD_FAILED, "nvcc failed with exit status 1").library is None
    True
    """

    status: CostStatus
    reason: str = ""
    library: Path | None = None
    build_sec: float = 0.0


BuildDone = Callable[[int, BuildResult], None]
"""Told of each result, by the index of its job."""


def nobody_waits(index: int, result: BuildResult) -> None:
    """Tells nobody of a result.

    Parameters
    ----------
    index, result
        As :data:`BuildDone` is given them.
    """


More = Callable[[], BuildJob | None]
"""What else there is to be built, if there is something now; asked again later, if not."""


def nothing_more() -> None:
    """The :data:`More` of those who know everything that is to be built."""


class NumberedJobs:
    """The jobs of one call, numbered as they become known, and what became of them.

    Parameters
    ----------
    jobs : sequence of BuildJob
        Known from the beginning.
    done, more
        As :meth:`Builder.build` is given them.

    Attributes
    ----------
    known : list of BuildJob
        By their numbers.
    results : dict
        Of those that are built, by their numbers.

    Examples
    --------
    >>> jobs = NumberedJobs([], nobody_waits, nothing_more)
    >>> jobs.another() is None, jobs.in_order()
    (True, [])
    """

    def __init__(self, jobs: Sequence[BuildJob], done: BuildDone, more: More) -> None:
        self.known, self.results = list(jobs), dict[int, BuildResult]()
        self._done, self._more = done, more

    def another(self) -> int | None:
        """The number of a job that was not known; None where there is none now."""
        job = self._more()
        if job is None:
            return None
        self.known.append(job)
        return len(self.known) - 1

    def take(self, index: int, result: BuildResult) -> None:
        """Keep a job's result, and tell of it.

        Parameters
        ----------
        index : int
            The job's number.
        result : BuildResult
            What became of it.
        """
        self.results[index] = result
        self._done(index, result)

    def in_order(self) -> list[BuildResult]:
        """All results, in the order of their jobs."""
        return [self.results[index] for index in range(len(self.known))]


class Builder(ABC):
    """Compiles in parallel; use as a context manager.

    Examples
    --------
    >>> class Nothing(Builder):
    ...     def build(self, jobs, done=None, more=nothing_more):
    ...         return [BuildResult(CostStatus.BUILD_FAILED, "there is no compiler")] * len(jobs)
    ...     def close(self):
    ...         pass
    >>> with Nothing() as builder:
    ...     builder.build([])
    []
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def build(
        self,
        jobs: Sequence[BuildJob],
        done: BuildDone = nobody_waits,
        more: More = nothing_more,
    ) -> list[BuildResult]:
        """Compile each job; one that fails, hangs or crashes gives an invalid result.

        The files of a valid result lie in the folder of its job, on this machine.

        Parameters
        ----------
        jobs : sequence of BuildJob
            Each with a folder of its own.
        done : callable, optional
            Given each result, by the index of its job, as soon as it is there, in the calling
            thread; the other workers go on meanwhile.
        more : callable, optional
            Asked in the calling thread, again and again, while somebody could build and no job
            waits. Its jobs are numbered from ``len(jobs)`` on. Building ends when it knows of
            nothing and nothing is being built.

        Returns
        -------
        list of BuildResult
            In the order of the jobs, those of ``more`` included.

        Raises
        ------
        OutOfTimeError
            When the deadline comes meanwhile.
        MeasurementError
            When there is nobody who could build.
        """

    @abstractmethod
    def close(self) -> None:
        """End the worker processes; the next build starts new ones."""
