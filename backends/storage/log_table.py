"""The table of a log in a database: lines, found by digests of what they are about.

A line is kept as it is written to a file, beside what it is looked up by. Nothing is ever changed
or deleted: a later line of a key counts, as in a file. Each line is inserted under its own digest,
so that a client that lost the connection while the server committed may simply try again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from collage.backends.storage.log_engine import LogEngine

_PAGE = 500
"""Lines that are in memory at once, and values that one question asks about."""
_BATCH = 10_000
"""Lines that are added in one transaction: every digest is in another page of its index, so a small
one writes each page many times."""

METADATA = sa.MetaData()

LOG = sa.Table(
    "collage_log",
    METADATA,
    # In the order of insertion; SQLite counts by itself in columns of this very type alone.
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("kind", sa.String(11), nullable=False),
    sa.Column("key", sa.LargeBinary, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("occurrence", sa.Integer, nullable=False),
    sa.Column("line", sa.Text, nullable=False),
    sa.Column("subject", sa.LargeBinary),
    sa.Column("device", sa.LargeBinary),
    sa.UniqueConstraint("digest", "occurrence", name="collage_log_once"),
    sa.Index("collage_log_key", "key", "id"),
    sa.Index("collage_log_subject", "subject", "id"),
    sa.Index("collage_log_device", "kind", "device", "id"),
)
"""As the newest migration leaves it; what each column is, :class:`Entry` says."""


@dataclass(frozen=True)
class Entry:
    """A line, and what it is found by.

    Attributes
    ----------
    kind : str
        ``measurement``, ``tuning`` or ``blob``.
    key : bytes
        Of lines of the same key the last counts.
    line : str
        Without its end.
    subject : bytes or None
        What it is about: the workload of a measurement, the question of a finding.
    device : bytes or None
        What it was found on.
    """

    kind: str
    key: bytes
    line: str
    subject: bytes | None = None
    device: bytes | None = None


def digest_of(*parts: object) -> bytes:
    """SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


class LogTable:
    """The lines of a log.

    Parameters
    ----------
    engine : LogEngine
        Where they are.
    """

    def __init__(self, engine: LogEngine) -> None:
        self.engine = engine

    def insert(self, entry: Entry) -> None:
        """Add a line; it is committed when this returns.

        Parameters
        ----------
        entry : Entry
            Its line counts for its key from now on.

        Raises
        ------
        LogError
            When the database cannot be written.
        """
        row = _row(entry)
        while True:
            added, tries = self.engine.write(partial(_insert, [row]))
            # Where an earlier try failed, what stands there is its line: the commit was lost only
            # on its way back.
            if added or tries > 1:
                return
            newest, occurrence = self.engine.read(partial(_present, row))
            if newest == entry.line:
                return
            row["occurrence"] = occurrence + 1

    def insert_all(self, entries: Iterable[Entry]) -> int:
        """Add lines that are not here, in their order, many in a transaction.

        Parameters
        ----------
        entries : iterable of Entry
            A line that stands there twice is here twice afterwards.

        Returns
        -------
        int
            How many were added.

        Raises
        ------
        LogError
            When the database cannot be written; what was added before stays.
        """
        seen, total = Counter[bytes](), 0
        rest = iter(entries)
        while batch := list(islice(rest, _BATCH)):
            rows = []
            for row in map(_row, batch):
                row["occurrence"] = seen[row["digest"]]
                seen[row["digest"]] += 1
                rows.append(row)
            total += self.engine.write(partial(_insert, rows))[0]
        return total

    def newest(self, keys: Collection[bytes]) -> dict[bytes, tuple[int, str]]:
        """Number and text of each key's last line; nothing for keys that have none."""
        found: dict[bytes, tuple[int, str]] = {}
        for some in _chunks(list(dict.fromkeys(keys))):
            last = sa.select(sa.func.max(LOG.c.id)).where(LOG.c.key.in_(some)).group_by(LOG.c.key)
            query = sa.select(LOG.c.key, LOG.c.id, LOG.c.line).where(LOG.c.id.in_(last))
            found |= {bytes(row.key): (row.id, row.line) for row in self.engine.rows(query)}
        return found

    def has(self, key: bytes) -> bool:
        """Whether there is a line of a key."""
        return bool(self.engine.rows(sa.select(LOG.c.id).where(LOG.c.key == key).limit(1)))

    def about(self, subject: bytes) -> Iterator[str]:
        """The lines about something, the last first."""
        query = sa.select(LOG.c.id, LOG.c.line).where(LOG.c.subject == subject)
        yield from (line for _, line in self._paged(query, backwards=True))

    def last_on(self, kind: str, device: bytes) -> str | None:
        """The last line of a kind that was found on a device.

        Parameters
        ----------
        kind : str
            Of the line.
        device : bytes
            The digest of the device.

        Returns
        -------
        str or None
            None where there is none.
        """
        query = sa.select(LOG.c.line).where(LOG.c.kind == kind, LOG.c.device == device)
        rows = self.engine.rows(query.order_by(LOG.c.id.desc()).limit(1))
        return rows[0].line if rows else None

    def one_per_device(self, kind: str) -> list[tuple[int, str]]:
        """Number and text of one line of a kind for each device."""
        ids = sa.select(sa.func.min(LOG.c.id)).where(LOG.c.kind == kind).group_by(LOG.c.device)
        query = sa.select(LOG.c.id, LOG.c.line).where(LOG.c.id.in_(ids)).order_by(LOG.c.id)
        return [(row.id, row.line) for row in self.engine.rows(query)]

    def count(self, kind: str) -> int:
        """Distinct keys of a kind."""
        query = sa.select(sa.func.count(LOG.c.key.distinct())).where(LOG.c.kind == kind)
        return int(self.engine.rows(query)[0][0])

    def lines(self) -> Iterator[tuple[int, str]]:
        """Number and text of all lines, in the order in which they were added."""
        return self._paged(sa.select(LOG.c.id, LOG.c.line))

    def newest_of_kind(
        self, kind: str, subjects: Collection[bytes] | None = None
    ) -> Iterator[tuple[int, str]]:
        """Number and text of the last line of each key, keys in order of first appearance.

        Parameters
        ----------
        kind : str
            Of the lines.
        subjects : collection of bytes, optional
            Only lines about one of these.

        Yields
        ------
        tuple[int, str]
            The line's number in the table, and the line.
        """
        earlier = LOG.alias()
        before = sa.exists().where(earlier.c.key == LOG.c.key, earlier.c.id < LOG.c.id)
        query = sa.select(LOG.c.id, LOG.c.key).where(LOG.c.kind == kind, ~before)
        if subjects is not None:
            parts = [query.where(LOG.c.subject.in_(some)) for some in _chunks(list(subjects))]
            firsts = sorted((row.id, bytes(row.key)) for q in parts for row in self.engine.rows(q))
            pages: Iterable[Sequence[tuple[int, Any]]] = _chunks(firsts)
        else:
            pages = _chunks(self._paged(query))
        for page in pages:
            found = self.newest([bytes(key) for _, key in page])
            yield from (found[bytes(key)] for _, key in page)

    def _paged(self, query: sa.Select[Any], *, backwards: bool = False) -> Iterator[Any]:
        """Rows by their ids, which are the first of their columns, a page at a time."""
        order = LOG.c.id.desc() if backwards else LOG.c.id
        query, position = query.order_by(order).limit(_PAGE), None
        while True:
            page = query
            if position is not None:
                page = query.where(LOG.c.id < position if backwards else LOG.c.id > position)
            rows = self.engine.rows(page)
            yield from rows
            if len(rows) < _PAGE:
                return
            position = rows[-1].id


def _insert(rows: list[dict[str, Any]], connection: sa.Connection) -> int:
    """Add rows but for those whose line is here; how many were added."""
    is_sqlite = connection.dialect.name == "sqlite"
    insert = sqlite.insert(LOG) if is_sqlite else postgresql.insert(LOG)
    unless = insert.on_conflict_do_nothing(index_elements=["digest", "occurrence"])
    options = {"preserve_rowcount": True}
    return connection.execute(unless, rows, execution_options=options).rowcount


def _present(row: dict[str, Any], connection: sa.Connection) -> tuple[str, int]:
    """The last line of a row's key, and the last occurrence of the row's own line."""
    same = sa.select(sa.func.max(LOG.c.occurrence)).where(LOG.c.digest == row["digest"])
    last = sa.select(LOG.c.line).where(LOG.c.key == row["key"]).order_by(LOG.c.id.desc())
    return connection.scalars(last.limit(1)).one(), connection.scalars(same).one()


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "key": entry.key,
        "digest": hashlib.sha256(entry.line.encode()).digest(),
        "occurrence": 0,
        "line": entry.line,
        "subject": entry.subject,
        "device": entry.device,
    }


def _chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(values)
    while chunk := list(islice(rest, _PAGE)):
        yield chunk
