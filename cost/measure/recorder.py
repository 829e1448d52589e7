"""Records results as they come in, and tells how far measuring is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from collage.cost.base import CostStatus
from collage.cost.database.record import Record, RecordKey
from collage.cost.measure.replay import RecordLookup
from collage.cost.measure.runner import RunResult
from collage.cost.progress import ProgressCallback, ProgressEvent, Workforce


class Recorder:
    """Turns results into records, each on disk as soon as it is known.

    Parameters
    ----------
    lookup : RecordLookup
        Where records go.
    progress : callable
        Informed of each workload measured.
    workforce : callable, optional
        Says who is at work.

    Attributes
    ----------
    wanted : int
        Workloads asked for so far.

    Examples
    --------
    >>> from collage.cost.base import Cost
    >>> from collage.cost.database import JsonLinesDatabase
    >>> from collage.cost.measure import MeasureStats
    >>> facts = ("5f1c", "8x8:float32", '{"backend": "tvm"}', (), "g++ 12.2", "0.22", "Some CPU")
    >>> key = RecordKey("partition", *facts, driver="none", num_threads=4, config="{}")
    >>> recorder = Recorder(RecordLookup(JsonLinesDatabase(), MeasureStats()), print)
    >>> recorder.keep(key, RunResult(Cost.of_samples([1e-6])), "relu 8x8", "tvm").backend
    'tvm'
    """

    def __init__(
        self,
        lookup: RecordLookup,
        progress: ProgressCallback,
        workforce: Callable[[], Workforce] | None = None,
    ) -> None:
        self.wanted = 0
        self._lookup = lookup
        self._progress = progress
        self._workforce = workforce
        self._done = 0

    def keep(
        self,
        key: RecordKey,
        result: RunResult,
        description: str,
        backend: str,
        build_sec: float = 0.0,
    ) -> Record:
        """Append the record of a result; it is on disk when this returns, unless it is unknown.

        Parameters
        ----------
        key : RecordKey
            What was measured, and how.
        result : RunResult
            What came out.
        description : str
            What was measured, for people.
        backend : str
            On what; several are separated by commas.
        build_sec : float
            Wall time of compiling it.

        Returns
        -------
        Record
            With the time of recording; an unknown cost makes a record, too, that is kept nowhere.
        """
        made = Record(
            key,
            result.cost,
            description,
            backend,
            result.largest_error,
            result.first_call_sec,
            build_sec,
            result.run_sec,
            datetime.now(UTC).isoformat(timespec="seconds"),
            result.clocks,
            result.rounds,
            result.calls,
        )
        return made if result.cost.status is CostStatus.UNKNOWN else self._lookup.keep(made)

    def keep_workload(
        self, key: RecordKey, result: RunResult, description: str, backend: str, build_sec: float
    ) -> None:
        """Append the record of a workload that was asked for, and report it.

        Parameters
        ----------
        key, result, description, backend, build_sec
            As for :meth:`keep`.
        """
        self.keep(key, result, description, backend, build_sec)
        self._done += 1
        self.report("measure", f"{description} on {backend}: {_text(result)}")

    def set_aside(self, key: RecordKey, description: str, backend: str, reason: str) -> None:
        """Note that a workload is not measured in this search, and report it.

        Parameters
        ----------
        key : RecordKey
            Of the record that is not made.
        description, backend : str
            As for :meth:`keep`.
        reason : str
            Why, in one line; of the workers, not of the workload.
        """
        self._lookup.set_aside(key, reason)
        self._done += 1
        self.report("lost", f"{description} on {backend} is set aside: {reason}")

    def report(self, stage: str, message: str) -> None:
        """Tell what is going on.

        Parameters
        ----------
        stage : str
            A step, such as ``"tune"``.
        message : str
            One line.
        """
        workforce = self._workforce() if self._workforce is not None else None
        self._progress(ProgressEvent(stage, self._done, self.wanted, message, workforce))


def _text(result: RunResult) -> str:
    cost = result.cost
    if not cost.is_valid:
        return f"{cost.status.value}, {cost.reason}"
    text = f"{cost.median_sec * 1e3:.3f} ms ± {cost.spread_sec * 1e3:.3f}"
    return f"{text} at {result.clocks.sm_mhz} MHz" if result.clocks else text
