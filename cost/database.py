"""The log of measurements: JSON Lines, append-only, shared between processes.

Two logs merge by concatenation. A line that is torn (a process was killed while it wrote) or
foreign is skipped and reported with its number; it never stops a search.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from collage.backends.errors import LogError
from collage.cost.record import Record, RecordKey


@dataclass(frozen=True)
class LogProblem:
    """A line of a log that was skipped."""

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
    """

    def __init__(self, path: Path | None = None, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._problems: list[LogProblem] = []
        self._torn = False
        self._records: dict[RecordKey, Record] = {}
        self._offset = 0
        self._lines = 0
        self.refresh()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def problems(self) -> list[LogProblem]:
        """Lines skipped so far."""
        torn = [LogProblem(self._lines + 1, "is torn: it has no end")] if self._torn else []
        return self._problems + torn

    def records(self) -> list[Record]:
        """All records, one per key, in order of first appearance."""
        return list(self._records.values())

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
            with self._open() as handle:
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
        with self._open() as handle:
            self._read_new(handle)
            data = record.to_json().encode() + b"\n"
            if self._torn:
                data = b"\n" + data
            written = 0
            while written < len(data):
                written += os.write(handle, data[written:])
            os.fsync(handle)
            self._read_new(handle)

    @contextmanager
    def _open(self) -> Iterator[int]:
        """The log, locked against other processes.

        The lock is on the log itself: no second file that could be left behind.
        """
        path = self.path
        assert path is not None
        flags = os.O_RDONLY if self.read_only else os.O_RDWR | os.O_APPEND | os.O_CREAT
        try:
            handle = os.open(path, flags | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_SH if self.read_only else fcntl.LOCK_EX)
                yield handle
            finally:
                os.close(handle)
        except OSError as err:
            verb = "read" if self.read_only else "written"
            raise LogError(
                f"log '{path}' cannot be {verb}: {err.strerror}", value=str(path)
            ) from err

    def _read_new(self, handle: int) -> None:
        size = os.fstat(handle).st_size
        data = b""
        while len(data) < size - self._offset:
            chunk = os.pread(handle, size - self._offset - len(data), self._offset + len(data))
            if not chunk:
                break
            data += chunk
        complete, newline, torn = data.rpartition(b"\n")
        for line in complete.split(b"\n") if newline else []:
            self._lines += 1
            self._read_line(line)
        # What has no end stays unread: whoever appends next makes it a line of its own.
        self._torn = bool(torn)
        self._offset += len(complete) + len(newline)

    def _read_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            record = Record.from_json(line.decode())
        except UnicodeDecodeError:
            self._problems.append(LogProblem(self._lines, "is no text"))
        except ValueError as err:
            self._problems.append(LogProblem(self._lines, str(err)))
        else:
            self._records[record.key] = record
