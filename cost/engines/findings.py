"""What backends find out on other machines comes into the log of the search, and goes to them.

A strict replay needs the log of the search alone, so builders elsewhere must choose as it says, and
what they choose must stand in it. What crosses are the log's own lines, strictly read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Iterable
from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import ProtocolError
from collage.backends.storage import TuningRecord, TuningStore
from collage.backends.storage.findings_file import FindingsFile
from collage.backends.storage.findings_place import findings_of
from collage.backends.storage.tuning_record import BLOB_KIND, KIND, blob_line, read_blob

_NOBODY = ""
"""The backend whose bytes these are: any."""


class HeadFindings:
    """Those of a search.

    Parameters
    ----------
    context : BuildContext
        Names its log and its cache folder.

    Examples
    --------
    >>> gpu = {"name": "NVIDIA H200", "compute_capability": 90}
    >>> far = Path("far.jsonl")
    >>> TuningStore("mine", 1, Path("far/kernels.jsonl"), far).append({"rows": 64}, gpu, {"is": 3})
    >>> lines = FarFindings(far).news()
    >>> context = BuildContext(Path("cache"), Path("work"), tuning_log=Path("log.jsonl"))
    >>> head = HeadFindings(context)
    >>> head.take(lines)
    >>> head.of("mine", told=()) == lines, head.of("mine", told=lines), head.of("yours", told=())
    (True, [], [])
    """

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._log = findings_of(context)
        self._records: list[TuningRecord] = []
        self.refresh()

    def refresh(self) -> None:
        """Read what others have added to the log.

        Raises
        ------
        LogError
            When it cannot be read.
        """
        if self._log is not None:
            self._log.refresh()
            self._records = list(self._log.records())

    def of(self, backend: str, told: Container[str]) -> list[str]:
        """The lines of the log that a backend's builders must know; none without a log.

        Parameters
        ----------
        backend : str
            Of a target.
        told : container of str
            Lines that they have.

        Returns
        -------
        list of str
            Lines of JSON that were not told yet, each after those of the blobs that it refers to.

        Raises
        ------
        LogError
            When the log cannot be read.
        """
        found = [(r, r.to_json()) for r in self._records if r.backend == backend]
        return [
            line
            for record, text in found
            if text not in told
            for line in (*self._blobs(record), text)
        ]

    def _blobs(self, record: TuningRecord) -> Iterable[str]:
        assert self._log is not None
        for reference in record.blobs():
            data = self._log.blob(reference)
            if data is not None:
                yield blob_line(data)

    def take(self, lines: Iterable[str]) -> None:
        """Keep what was found elsewhere, in the log and in this machine's cache.

        Raises
        ------
        ProtocolError
            When one is neither a finding nor what findings refer to.
        LogError
            When the log cannot be written.
        """
        for line in lines:
            found = _read(line)
            with self._lock:
                if isinstance(found, bytes):
                    # Named by what they are, they may come long before what refers to them.
                    TuningStore.of(_NOBODY, 0, self._context).keep(found)
                    continue
                store = TuningStore.of(found.backend, found.schema, self._context)
                known = store.find(found.key, found.device)
                if known is None or known.result != found.result:
                    store.append(found.key, found.device, found.result)
                    if self._log is not None:
                        self._records.append(found)


class FarFindings:
    """Those of a machine that builds for a search elsewhere, in a log of its own.

    Parameters
    ----------
    log : Path
        What builders have as the user's log.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._known: set[str] = set()

    def take(self, lines: Iterable[str]) -> None:
        """Add lines of the search's log.

        Raises
        ------
        ProtocolError
            When one is neither a finding nor what findings refer to.
        """
        with self._lock:
            file = FindingsFile(self._log)
            for line in lines:
                if line in self._known:
                    continue
                found = _read(line)
                if isinstance(found, bytes):
                    file.append_blob(found)
                else:
                    file.append(found)
                self._known.add(line)

    def news(self) -> list[str]:
        """What came to the log since the last time, of others than the search."""
        with self._lock:
            if not self._log.is_file():
                return []
            text = self._log.read_text(encoding="utf-8")
            # The last line may be one that is being written.
            complete = text[: text.rfind("\n") + 1].splitlines()
            news = [line for line in complete if line and line not in self._known]
            self._known.update(news)
            return news


def _read(line: str) -> TuningRecord | bytes:
    """A finding, or the bytes that those after it refer to."""
    try:
        value = json.loads(line)
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind == KIND:
            return TuningRecord.from_value(value)
        if kind == BLOB_KIND:
            return read_blob(value)
    except ValueError as err:
        raise ProtocolError(f"cannot read a finding: {err}", value=line) from err
    raise ProtocolError("what should be a finding is none", value=line)
