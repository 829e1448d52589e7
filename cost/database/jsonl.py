"""The log of measurements: JSON Lines, append-only, shared between processes.

Two logs merge by concatenation. A line that is torn (a process was killed while it wrote) or
foreign is skipped and reported with its number; it never stops a search. What backends found by
tuning their kernels stands between the measurements and is theirs, see
:mod:`collage.backends.storage.tuning_store`.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from collage.backends.contract.errors import LogError
from collage.backends.storage import BlobReference, TuningRecord
from collage.backends.storage.line_file import (
    Line,
    LineReader,
    append_line,
    check_is_log,
    opened,
    reading,
)
from collage.cost.database._base import Database, LogProblem
from collage.cost.database.record import Record, RecordKey, read_line


class JsonLinesDatabase(Database):
    """A file of lines, which is read once and held in memory.

    Parameters
    ----------
    path : Path or None
        The log; made when it is not there. None keeps records in memory only.
    read_only : bool
        Never write, for a replay; the log must exist.

    Raises
    ------
    LogError
        When the log cannot be read or, unless ``read_only``, written, or is a file of another
        kind; before any measuring.

    Examples
    --------
    >>> database = JsonLinesDatabase(Path("measurements.jsonl"))
    >>> len(database), database.problems
    (0, [])
    """

    def __init__(self, path: Path | None = None, *, read_only: bool = False) -> None:
        self.path = path
        self.name = "memory" if path is None else str(path)
        self.read_only = read_only
        self._problems: list[LogProblem] = []
        self._records: dict[RecordKey, Record] = {}
        self._findings: dict[str, TuningRecord] = {}
        self._blobs: dict[str, BlobReference] = {}
        self._reader = LineReader()
        # The answer in hand is recorded while workloads are.
        self._lock = threading.RLock()
        if path is not None:
            check_is_log(path)
        self.refresh()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def problems(self) -> Sequence[LogProblem]:
        return self._problems + ([_torn(self._reader)] if self._reader.is_torn else [])

    def records(self, workloads: Collection[str] | None = None) -> Iterator[Record]:
        found = list(self._records.values())
        return iter(found if workloads is None else _of(found, set(workloads)))

    def findings(self) -> Iterator[TuningRecord]:
        return iter(list(self._findings.values()))

    def blobs(self) -> Iterator[BlobReference]:
        return iter(list(self._blobs.values()))

    def devices(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((r.key.device, r.key.driver) for r in self.records()))

    def lines(self) -> Iterator[str]:
        if self.path is None:
            yield from (record.to_json() for record in self.records())
            return
        yield from readable_lines(self.path)

    def extend(self, lines: Iterable[str]) -> int:
        present, seen = Counter(map(_digest, self.lines())), Counter[bytes]()
        missing = []
        for line in lines:
            seen[_digest(line)] += 1
            if seen[_digest(line)] > present[_digest(line)]:
                missing.append(line)
        if missing:
            self._append(missing)
        return len(missing)

    def lookup_all(self, keys: Sequence[RecordKey]) -> list[Record | None]:
        return [self._records.get(key) for key in keys]

    def refresh(self) -> None:
        if self.path is not None:
            with self._lock, opened(self.path, read_only=self.read_only) as handle:
                self._read_new(handle)

    def append(self, record: Record) -> None:
        if self.path is None:
            self._records[record.key] = record
        else:
            self._append([record.to_json()])

    def _append(self, lines: Sequence[str]) -> None:
        if self.read_only:
            raise LogError(f"log '{self.name}' was opened to be read only", value=self.name)
        if self.path is None:
            for line in lines:
                self._take(read_line(line))
            return
        with self._lock, opened(self.path, read_only=False) as handle:
            append_line(handle, "\n".join(lines))
            self._read_new(handle)

    def _read_new(self, handle: int) -> None:
        for line in self._reader.new_lines(handle):
            self._read_line(line)

    def _read_line(self, line: Line) -> None:
        if not line.content.strip():
            return
        try:
            self._take(_found(line)[1])
        except ValueError as err:
            self._problems.append(LogProblem(line.number, str(err)))

    def _take(self, found: Record | TuningRecord | BlobReference) -> None:
        if isinstance(found, TuningRecord):
            self._findings[found.identity] = found
        elif isinstance(found, BlobReference):
            self._blobs[found.sha256] = found
        else:
            self._records[found.key] = found


def _of(records: Iterable[Record], workloads: set[str]) -> Iterator[Record]:
    return (record for record in records if record.key.workload in workloads)


def _digest(line: str) -> bytes:
    return hashlib.sha256(line.encode()).digest()


def readable_lines(
    path: Path, report: Callable[[LogProblem], None] = lambda _: None
) -> Iterator[str]:
    """The lines of a log as they stand there, without their ends; a few in memory at a time.

    Parameters
    ----------
    path : Path
        The log.
    report : callable
        Told of each line that is skipped.

    Yields
    ------
    str
        Lines that hold a record, in the order of the file; others are reported, empty ones are
        not.

    Raises
    ------
    LogError
        When it cannot be read.
    """
    reader = LineReader()
    # Not locked: whoever reads may take hours, and a line that has its end changes no more.
    with reading(path) as handle:
        for line in reader.new_lines(handle):
            if not line.content.strip():
                continue
            try:
                yield _found(line)[0]
            except ValueError as err:
                report(LogProblem(line.number, str(err)))
    if reader.is_torn:
        report(_torn(reader))


def _found(line: Line) -> tuple[str, Record | TuningRecord | BlobReference]:
    """A line's text, and what it says; why not, as a ``ValueError``."""
    try:
        text = line.content.decode()
    except UnicodeDecodeError as err:
        raise ValueError("is no text") from err
    return text, read_line(text)


def _torn(reader: LineReader) -> LogProblem:
    return LogProblem(reader.num_lines + 1, "is torn: it has no end")
