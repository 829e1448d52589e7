"""The log of measurements: JSON Lines, append-only, shared between processes.

Two logs merge by concatenation. A line that is torn (a process was killed while it wrote) or
foreign is skipped and reported with its number; it never stops a search. What backends found by
tuning their kernels stands between the measurements and is theirs, see
:mod:`collage.backends.storage.tuning_store`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract.errors import LogError
from collage.backends.storage import BlobReference, TuningRecord
from collage.backends.storage.line_file import Line, LineReader, append_line, opened
from collage.cost.database.record import Record, RecordKey, read_line


@dataclass(frozen=True)
class LogProblem:
    """A line of a log that was skipped.

    Examples
    --------
    >>> size = Path("log.jsonl").write_text('{"schema": 1, "kind"')
    >>> [str(problem) for problem in Database(Path("log.jsonl")).problems]
    ['line 1 is torn: it has no end']
    """

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line} {self.reason}"


class Database:
    """Records by key; the last one of a key counts.

    Parameters
    ----------
    path : Path or None
        The log; made when it is not there. None keeps records in memory only.
    read_only : bool
        Never write, for a replay; the log must exist.

    Raises
    ------
    LogError
        When the log cannot be read or, unless ``read_only``, written; before any measuring.

    Examples
    --------
    >>> database = Database(Path("measurements.jsonl"))
    >>> len(database), database.problems
    (0, [])
    """

    def __init__(self, path: Path | None = None, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._problems: list[LogProblem] = []
        self._records: dict[RecordKey, Record] = {}
        self._findings: dict[str, TuningRecord] = {}
        self._blobs: dict[str, BlobReference] = {}
        self._reader = LineReader()
        # The answer in hand is recorded while workloads are.
        self._lock = threading.RLock()
        self.refresh()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def problems(self) -> list[LogProblem]:
        """Lines skipped so far."""
        number = self._reader.num_lines + 1
        torn = [LogProblem(number, "is torn: it has no end")] if self._reader.is_torn else []
        return self._problems + torn

    def records(self) -> list[Record]:
        """All measurements, one per key, in order of first appearance."""
        return list(self._records.values())

    def findings(self) -> list[TuningRecord]:
        """What backends have found by tuning, the last of equals, in order of first appearance."""
        return list(self._findings.values())

    def blobs(self) -> list[BlobReference]:
        """Which bytes the log holds for its findings, in order of first appearance."""
        return list(self._blobs.values())

    def lookup(self, key: RecordKey) -> Record | None:
        """The record with exactly this key; invalid ones are answers too."""
        return self._records.get(key)

    def refresh(self) -> None:
        """Read what other processes have appended since.

        Raises
        ------
        LogError
            When the log cannot be read.
        """
        if self.path is not None:
            with self._lock, opened(self.path, read_only=self.read_only) as handle:
                self._read_new(handle)

    def append(self, record: Record) -> None:
        """Add a record; it is on disk when this returns.

        Raises
        ------
        LogError
            When the log cannot be written.
        """
        if self.path is None:
            self._records[record.key] = record
            return
        if self.read_only:
            raise LogError(f"log '{self.path}' was opened to be read only", value=str(self.path))
        with self._lock, opened(self.path, read_only=False) as handle:
            append_line(handle, record.to_json())
            self._read_new(handle)

    def _read_new(self, handle: int) -> None:
        for line in self._reader.new_lines(handle):
            self._read_line(line)

    def _read_line(self, line: Line) -> None:
        if not line.content.strip():
            return
        try:
            record = read_line(line.content.decode())
        except UnicodeDecodeError:
            self._problems.append(LogProblem(line.number, "is no text"))
        except ValueError as err:
            self._problems.append(LogProblem(line.number, str(err)))
        else:
            if isinstance(record, TuningRecord):
                self._findings[record.identity] = record
            elif isinstance(record, BlobReference):
                self._blobs[record.sha256] = record
            else:
                self._records[record.key] = record
