"""The log of measurements in a database that a team shares, through SQLAlchemy.

It holds the lines that a file would, and gives them back byte for byte. Records are asked for by
key, never all together. Whatever is asked is asked of the database: there is nothing to refresh.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence

from collage.backends.contract.errors import LogError
from collage.backends.storage import BlobReference, TuningRecord
from collage.backends.storage.findings_table import entry_of_blob, entry_of_finding
from collage.backends.storage.log_engine import PATIENCE_SEC, LogEngine
from collage.backends.storage.log_table import Entry, LogTable, digest_of
from collage.backends.storage.log_url import LogUrl
from collage.backends.storage.tuning_record import BLOB_KIND, KIND
from collage.cost.database._base import Database, LogProblem
from collage.cost.database.record import Record, RecordKey, read_line
from collage.cost.database.schema import HEAD, check_writable, create, refuse_unless_head, version

_MEASUREMENT = "measurement"


class SqlDatabase(Database):
    """The log at a URL; made when it is not there.

    Parameters
    ----------
    url : str or LogUrl
        ``sqlite:///team.db`` or ``postgresql+psycopg://user@host/database``.
    read_only : bool
        Never write, for a replay; the log must exist.
    patience_sec : float
        For how long at most a server that is away is waited for, once it was there.

    Raises
    ------
    LogError
        When the URL is none, the server cannot be reached, or the log cannot be read or, unless
        ``read_only``, written; when it is of another schema than this release's.

    Examples
    --------
    >>> database = SqlDatabase("sqlite:///measurements.db")
    >>> len(database), list(database.records())
    (0, [])
    """

    def __init__(
        self,
        url: str | LogUrl,
        *,
        read_only: bool = False,
        patience_sec: float = PATIENCE_SEC,
    ) -> None:
        self.url = url if isinstance(url, LogUrl) else LogUrl(url)
        self.name, self.read_only = self.url.name, read_only
        engine = LogEngine(self.url, read_only=read_only, patience_sec=patience_sec)
        self._table = LogTable(engine)
        self._problems: dict[int, LogProblem] = {}
        found = version(engine)
        if found is None and read_only:
            raise LogError(
                f"log '{self.name}' cannot be read: the database holds no log", value=self.name
            )
        if found is None:
            create(engine)
        elif found != HEAD:
            refuse_unless_head(engine, found)
        if not read_only:
            check_writable(engine)

    @property
    def problems(self) -> Sequence[LogProblem]:
        return sorted(self._problems.values(), key=lambda problem: problem.line)

    def __len__(self) -> int:
        return self._table.count(_MEASUREMENT)

    def records(self, workloads: Collection[str] | None = None) -> Iterator[Record]:
        subjects = None if workloads is None else list(map(_subject, workloads))
        for found in self._read(self._table.newest_of_kind(_MEASUREMENT, subjects)):
            if isinstance(found, Record):
                yield found

    def findings(self) -> Iterator[TuningRecord]:
        for found in self._read(self._table.newest_of_kind(KIND)):
            if isinstance(found, TuningRecord):
                yield found

    def blobs(self) -> Iterator[BlobReference]:
        for found in self._read(self._table.newest_of_kind(BLOB_KIND)):
            if isinstance(found, BlobReference):
                yield found

    def devices(self) -> list[tuple[str, str]]:
        found = self._read(self._table.one_per_device(_MEASUREMENT))
        keys = [record.key for record in found if isinstance(record, Record)]
        return [(key.device, key.driver) for key in keys]

    def lines(self) -> Iterator[str]:
        yield from (line for _, line in self._table.lines())

    def extend(self, lines: Iterable[str]) -> int:
        return self._table.insert_all(map(entry_of, lines))

    def lookup_all(self, keys: Sequence[RecordKey]) -> list[Record | None]:
        digests = [_digest(key) for key in keys]
        known: dict[RecordKey, Record] = {}
        for found in self._read(self._table.newest(digests).values()):
            if isinstance(found, Record):
                known[found.key] = found
        return [known.get(key) for key in keys]

    def refresh(self) -> None:
        pass

    def append(self, record: Record) -> None:
        self._table.insert(entry_of(record.to_json()))

    def _read(
        self, rows: Iterable[tuple[int, str]]
    ) -> Iterator[Record | TuningRecord | BlobReference]:
        for number, line in rows:
            try:
                yield read_line(line)
            except ValueError as err:
                # Somebody else's: lines are read before they are put there.
                self._problems[number] = LogProblem(number, str(err))


def entry_of(line: str) -> Entry:
    """What a line is looked up by.

    Raises
    ------
    ValueError
        When it is none of these; says why.
    """
    found = read_line(line)
    if isinstance(found, TuningRecord):
        return entry_of_finding(found, line)
    if isinstance(found, BlobReference):
        return entry_of_blob(found, line)
    key = found.key
    device = digest_of("device", key.device, key.driver)
    return Entry(_MEASUREMENT, _digest(key), line, _subject(key.workload), device)


def _digest(key: RecordKey) -> bytes:
    return digest_of(_MEASUREMENT, dataclasses.astuple(key))


def _subject(workload: str) -> bytes:
    return digest_of("workload", workload)
