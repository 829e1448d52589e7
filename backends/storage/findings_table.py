"""The findings of a log that is in a database, asked for one by one."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from collage.backends.storage.log_engine import LogEngine
from collage.backends.storage.log_table import Entry, LogTable, digest_of
from collage.backends.storage.log_url import LogUrl
from collage.backends.storage.tuning_record import (
    BLOB_KIND,
    KIND,
    BlobReference,
    TuningRecord,
    blob_line,
    read_blob,
)


class FindingsTable:
    """As :class:`~collage.backends.storage.findings_file.FindingsFile`, of a database.

    Parameters
    ----------
    table : LogTable
        Holds measurements, too.
    """

    def __init__(self, table: LogTable) -> None:
        self._table = table

    @property
    def problems(self) -> list[str]:
        """None: lines are read before they are put there."""
        return []

    def refresh(self) -> None:
        """Nothing: whatever is asked is asked of the database."""

    def records(self) -> list[TuningRecord]:
        """All findings, but for those that later ones replace."""
        lines = self._table.newest_of_kind(KIND)
        return [TuningRecord.from_value(json.loads(line)) for _, line in lines]

    def find(self, question: str, device: Mapping[str, Any]) -> TuningRecord | None:
        """The last finding that answers a question, see the file's.

        Parameters
        ----------
        question : str
            The digest of what was asked, in hexadecimal digits.
        device : mapping of str to object
            What the finding depends on besides.

        Returns
        -------
        TuningRecord or None
            None where nobody found anything on such a device.
        """
        for line in self._table.about(bytes.fromhex(question)):
            record = TuningRecord.from_value(json.loads(line))
            if device.items() <= record.device.items():
                return record
        return None

    def last_on(self, compute_capability: int) -> TuningRecord | None:
        """The last finding of a GPU with this compute capability, whichever backend's."""
        line = self._table.last_on(KIND, _device(compute_capability))
        return None if line is None else TuningRecord.from_value(json.loads(line))

    def has_blob(self, reference: BlobReference) -> bool:
        """Whether the database holds these bytes."""
        return self._table.has(_blob_key(reference))

    def blob(self, reference: BlobReference) -> bytes | None:
        """The bytes, or None where the database does not hold them whole."""
        found = self._table.newest([_blob_key(reference)])
        try:
            return next((read_blob(json.loads(line)) for _, line in found.values()), None)
        except ValueError:
            return None

    def append(self, record: TuningRecord) -> None:
        """Add a finding."""
        self._table.insert(entry_of_finding(record, record.to_json()))

    def append_blob(self, data: bytes) -> None:
        """Add bytes."""
        self._table.insert(entry_of_blob(BlobReference.of(data), blob_line(data)))


@functools.lru_cache(maxsize=8)
def findings_table(url: str, read_only: bool) -> FindingsTable:
    """The findings at a URL: one for all who ask in this process.

    Parameters
    ----------
    url : str
        The database, whose schema whoever began the search has checked.
    read_only : bool
        For a replay.

    Returns
    -------
    FindingsTable
        Open; nothing is asked of the server yet.
    """
    return FindingsTable(LogTable(LogEngine(LogUrl(url), read_only=read_only)))


def entry_of_finding(record: TuningRecord, line: str) -> Entry:
    """What a finding's line is looked up by.

    Parameters
    ----------
    record : TuningRecord
        What it says.
    line : str
        The line.

    Returns
    -------
    Entry
        By its question, and by the GPU's compute capability where it has one.
    """
    capability = record.device.get("compute_capability")
    device = _device(capability) if isinstance(capability, int) else None
    key = digest_of(KIND, record.identity)
    return Entry(KIND, key, line, bytes.fromhex(record.question), device)


def entry_of_blob(reference: BlobReference, line: str) -> Entry:
    """What a blob's line is looked up by.

    Parameters
    ----------
    reference : BlobReference
        What it holds.
    line : str
        The line.

    Returns
    -------
    Entry
        By the digest of its bytes.
    """
    return Entry(BLOB_KIND, _blob_key(reference), line)


def _blob_key(reference: BlobReference) -> bytes:
    return digest_of(BLOB_KIND, reference.sha256)


def _device(compute_capability: int) -> bytes:
    return digest_of("compute_capability", compute_capability)
