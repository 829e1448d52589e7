"""One file of findings, of which each line is read once however often it is asked."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collage.backends.contract.errors import LogError
from collage.backends.storage.line_file import (
    Line,
    LineReader,
    append_line,
    opened,
    read_bytes,
)
from collage.backends.storage.tuning_record import (
    BLOB_KIND,
    KIND,
    BlobReference,
    TuningRecord,
    blob_line,
    read_blob,
    read_blob_reference,
)

_MARKS = (f'"{KIND}"'.encode(), f'"{BLOB_KIND}"'.encode())

_BLOB = re.compile(
    rb'\{"kind": "blob", "sha256": "([0-9a-f]{64})", "size": (\d+), "encoding": [^{}]*"\}'
)
"""A blob's line as it is written: its bytes need not be parsed to know which they are."""


class FindingsFile:
    """The findings in a file of lines, and the blobs; measurements are passed over.

    Parameters
    ----------
    path : Path
        Need not be there.

    Attributes
    ----------
    problems : list of str
        Lines that could not be read, in words.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._reader = LineReader()
        self._found: list[str] = []
        self._records: dict[str, list[TuningRecord]] = {}
        self._last_on: dict[int, TuningRecord] = {}
        self._blobs: dict[str, tuple[int, int]] = {}

    @property
    def problems(self) -> list[str]:
        """Lines that could not be read, in words."""
        with self._lock:
            number = self._reader.num_lines + 1
            torn = [f"{self.path}:{number}: a torn line is skipped"] if self._reader.is_torn else []
            return self._found + torn

    def refresh(self) -> None:
        """Read what was appended meanwhile.

        Raises
        ------
        LogError
            When the file is there and cannot be read.
        """
        with self._lock:
            if not self.path.is_file():
                self._clear()
                return
            with opened(self.path, read_only=True) as handle:
                self._read(handle)

    def records(self) -> list[TuningRecord]:
        """All findings, those that later ones replace included, by what they answer."""
        with self._lock:
            return [record for records in self._records.values() for record in records]

    def find(self, question: str, device: Mapping[str, Any]) -> TuningRecord | None:
        """The last finding that answers a question, on a device of which some facts are known.

        Parameters
        ----------
        question : str
            From :func:`~collage.backends.storage.tuning_record.question_digest`.
        device : mapping
            Facts that the finding's device must agree with.

        Returns
        -------
        TuningRecord or None
            None where nobody found anything on such a device.
        """
        with self._lock:
            found = reversed(self._records.get(question, ()))
            return next((r for r in found if device.items() <= r.device.items()), None)

    def last_on(self, compute_capability: int) -> TuningRecord | None:
        """The last finding of a GPU with this compute capability, whichever backend's."""
        with self._lock:
            return self._last_on.get(compute_capability)

    def has_blob(self, reference: BlobReference) -> bool:
        """Whether the file says that it holds these bytes."""
        with self._lock:
            return reference.sha256 in self._blobs

    def blob(self, reference: BlobReference) -> bytes | None:
        """The bytes, or None where the file does not hold them whole.

        Raises
        ------
        LogError
            When the file is there and cannot be read.
        """
        with self._lock:
            place = self._blobs.get(reference.sha256)
            if place is None or not self.path.is_file():
                return None
            with opened(self.path, read_only=True) as handle:
                line = read_bytes(handle, *place)
        try:
            return read_blob(json.loads(line))
        except ValueError:
            return None

    def append(self, record: TuningRecord) -> None:
        """Add a finding.

        Raises
        ------
        LogError
            When the file cannot be written.
        """
        self._append(record.to_json())

    def append_blob(self, data: bytes) -> None:
        """Add bytes.

        Raises
        ------
        LogError
            When the file cannot be written.
        """
        self._append(blob_line(data))

    def _append(self, line: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise LogError(
                f"folder '{self.path.parent}' cannot be made: {err.strerror}", value=str(self.path)
            ) from err
        with self._lock, opened(self.path, read_only=False) as handle:
            append_line(handle, line)
            self._read(handle)

    def _read(self, handle: int) -> None:
        if not self._reader.is_continued_by(handle):
            self._clear()
        for line in self._reader.new_lines(handle):
            self._take(line)

    def _take(self, line: Line) -> None:
        # A log is mostly measurements, which are long: they need not be parsed.
        content = line.content.strip()
        if not content:
            return
        if content.endswith(b"}") and not any(mark in content for mark in _MARKS):
            return
        if blob := _BLOB.fullmatch(content):
            self._blobs[blob[1].decode()] = (line.offset, len(line.content))
            return
        try:
            value = json.loads(content)
            kind = value.get("kind") if isinstance(value, dict) else None
            if kind == KIND:
                self._keep(TuningRecord.from_value(value))
            elif kind == BLOB_KIND:
                digest = read_blob_reference(value).sha256
                self._blobs[digest] = (line.offset, len(line.content))
        except ValueError:
            self._found.append(f"{self.path}:{line.number}: a torn line is skipped")

    def _keep(self, record: TuningRecord) -> None:
        self._records.setdefault(record.question, []).append(record)
        capability = record.device.get("compute_capability")
        if isinstance(capability, int):
            self._last_on[capability] = record


@functools.lru_cache(maxsize=8)
def findings_file(path: Path) -> FindingsFile:
    """The file of a path: one for all who ask in this process, so that each line is read once.

    A compilation asks a log for its findings; a process that compiles hundreds of candidates must
    not read a log of a million lines hundreds of times.
    """
    return FindingsFile(path)
