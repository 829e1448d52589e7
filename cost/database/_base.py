"""The contract of a log of measurements: records by key, shared, never lost.

Where it is kept, in a file of lines or in a database, is the implementation's affair;
:class:`collage.testing.DatabaseContract` is a suite for any of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from collage.backends.storage import BlobReference, TuningRecord
from collage.cost.database.record import Record, RecordKey


@dataclass(frozen=True)
class LogProblem:
    """A line of a log that was skipped.

    Attributes
    ----------
    line : int
        Its number, counted from 1.
    reason : str
        What is wrong with it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from collage.cost.database import JsonLinesDatabase
    >>> size = Path("log.jsonl").write_text('{"schema": 1, "kind"')
    >>> [str(problem) for problem in JsonLinesDatabase(Path("log.jsonl")).problems]
    ['line 1 is torn: it has no end']
    """

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line} {self.reason}"


class Database(ABC):
    """Records by key; the last one of a key counts. Threads may share one.

    What backends found by tuning their kernels, and the bytes of it, stand between the records and
    are theirs, see :mod:`collage.backends.storage.tuning_store`.

    Attributes
    ----------
    name : str
        Where it is, for messages; without passwords.
    read_only : bool
        Whether it is never written, for a replay.

    Examples
    --------
    >>> from collage.cost.database import JsonLinesDatabase
    >>> isinstance(JsonLinesDatabase(), Database)
    True
    """

    name: str
    read_only: bool

    @property
    @abstractmethod
    def problems(self) -> Sequence[LogProblem]:
        """What was skipped so far because it could not be read."""

    @abstractmethod
    def __len__(self) -> int:
        """Distinct keys of measurements."""

    @abstractmethod
    def records(self, workloads: Collection[str] | None = None) -> Iterator[Record]:
        """Measurements, one per key, in order of first appearance; a few in memory at a time.

        Parameters
        ----------
        workloads : collection of str, optional
            Only those whose key has one of these workloads.
        """

    @abstractmethod
    def findings(self) -> Iterator[TuningRecord]:
        """What backends have found by tuning, the last of equals, in order of first appearance."""

    @abstractmethod
    def blobs(self) -> Iterator[BlobReference]:
        """Which bytes the log holds for its findings, in order of first appearance."""

    @abstractmethod
    def devices(self) -> list[tuple[str, str]]:
        """Device and driver of the records' keys, each pair once."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Every line as it was written, without its end; those that later ones replace, too."""

    @abstractmethod
    def extend(self, lines: Iterable[str]) -> int:
        """Add lines of another log, in their order, those of them that are not here.

        Parameters
        ----------
        lines : iterable of str
            As :meth:`lines` gives them. One that stands there twice is here twice afterwards.

        Returns
        -------
        int
            How many were added.

        Raises
        ------
        LogError
            When they cannot be written.
        """

    def lookup(self, key: RecordKey) -> Record | None:
        """The record with exactly this key; invalid ones are answers too."""
        return self.lookup_all([key])[0]

    @abstractmethod
    def lookup_all(self, keys: Sequence[RecordKey]) -> list[Record | None]:
        """The record of each key, at the same position; asked for together, they cost less.

        Raises
        ------
        LogError
            When the log cannot be read.
        """

    @abstractmethod
    def refresh(self) -> None:
        """See what others have appended: before this they may or may not be seen.

        Raises
        ------
        LogError
            When the log cannot be read.
        """

    @abstractmethod
    def append(self, record: Record) -> None:
        """Add a record; it outlives this process when this returns.

        Raises
        ------
        LogError
            When the log cannot be written.
        """
