"""Connections to a log's database: short ones, tried again where the server was away for a while.

Each piece of work has a connection and a transaction of its own. So nothing is held open while a
search compiles for hours, a server may be restarted in between, and many hosts share the few
connections that it has.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import NullPool

from collage.backends.contract.errors import LogError
from collage.backends.storage.log_url import LogUrl

PATIENCE_SEC = 30.0
"""How long a server that answers no more is waited for, or another writer of an SQLite file."""

_FIRST_PAUSE_SEC, _LONGEST_PAUSE_SEC = 0.05, 3.0

_CONNECTING = {
    # A server that is away answers nothing; one that is gone in the middle of an answer shall be
    # noticed within a minute, not after the two hours of the system's defaults.
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "collage",
}
_WRITES = "collage_writes"

T = TypeVar("T")


class LogEngine:
    """Reads and writes a log's database; threads may share one.

    Parameters
    ----------
    url : LogUrl
        Where it is.
    read_only : bool
        Refuse to write.
    patience_sec : float
        For how long at most what failed is tried again.
    """

    def __init__(
        self, url: LogUrl, *, read_only: bool = False, patience_sec: float = PATIENCE_SEC
    ) -> None:
        self.url, self.read_only = url, read_only
        self._patience_sec = patience_sec
        self._engine = self._sqlite() if url.file else self._server()

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Do something that changes nothing, in a transaction of its own.

        Parameters
        ----------
        work : callable
            Given a connection; called again where that broke.

        Raises
        ------
        LogError
            When it cannot be done, after all tries.
        """
        return self._run(work, "read", self._patience_sec)[0]

    def rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        """All rows that a query finds.

        Parameters
        ----------
        query : Select
            Bounded: they are in memory together.
        """
        return self.read(lambda connection: connection.execute(query).all())

    def write(self, work: Callable[[sa.Connection], T]) -> tuple[T, int]:
        """Do something in a transaction of its own, committed when this returns.

        Parameters
        ----------
        work : callable
            Given a connection. Called again where that broke, perhaps after the commit.

        Returns
        -------
        result : object
            What ``work`` returned.
        tries : int
            How often it was called.

        Raises
        ------
        LogError
            When it cannot be done, after all tries, or nothing may be written.
        """
        if self.read_only:
            name = self.url.name
            raise LogError(f"log '{name}' was opened to be read only", value=name)
        return self._run(work, "written", self._patience_sec)

    def first(self, work: Callable[[sa.Connection], T], verb: str) -> T:
        """As :meth:`read`, once: whoever names a server that is not there is told at once.

        Parameters
        ----------
        work : callable
            Given a connection.
        verb : str
            What cannot be done then, ``read`` or ``written``.

        Returns
        -------
        T
            What ``work`` returns.

        Raises
        ------
        LogError
            When it cannot be done.
        """
        return self._run(work, verb, 0.0)[0]

    def _run(
        self, work: Callable[[sa.Connection], T], verb: str, patience_sec: float
    ) -> tuple[T, int]:
        end, pause, tries = time.monotonic() + patience_sec, _FIRST_PAUSE_SEC, 0
        engine = self._engine.execution_options(**{_WRITES: verb == "written"})
        while True:
            tries += 1
            try:
                with engine.begin() as connection:
                    result = work(connection)
                return result, tries
            except DBAPIError as err:
                if not _may_pass(err) or time.monotonic() + pause > end:
                    # Not chained: what a driver says may hold what it was given.
                    raise self._error(err, verb, tries) from None
            # Not all that were thrown out by a restart shall come back at once.
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE_SEC)

    def _error(self, err: DBAPIError, verb: str, tries: int) -> LogError:
        name, reason = self.url.name, self.url.masked(str(err.orig))
        how_often = f" ({tries} tries)" if tries > 1 else ""
        return LogError(
            f"log '{name}' cannot be {verb}: {reason}{how_often}{_remedy(reason)}", value=name
        )

    def _sqlite(self) -> sa.Engine:
        path = self.url.file
        assert path is not None
        # What a killed writer left half done is rolled back by the next who opens the file, which
        # takes the right to write even where nothing is going to be written.
        mode = "rwc" if not self.read_only else "rw" if os.access(path, os.W_OK) else "ro"

        def connect() -> sqlite3.Connection:
            # Transactions are begun below: by itself the module begins them too late.
            made = sqlite3.connect(
                f"file:{quote(str(path))}?mode={mode}",
                uri=True,
                timeout=max(self._patience_sec, 1.0),
                isolation_level=None,
                check_same_thread=False,
            )
            # Of indexes over digests any page may be asked for; its own 2 MB are soon too few.
            made.execute("PRAGMA cache_size = -65536")
            if self.read_only:
                made.execute("PRAGMA query_only = ON")
            return made

        engine = sa.create_engine(
            "sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True
        )

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            # A reader that becomes a writer half way could not wait for another one.
            writes = connection.get_execution_options().get(_WRITES) and not self.read_only
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _server(self) -> sa.Engine:
        given = self.url.url.query
        arguments = {k: v for k, v in _CONNECTING.items() if k not in given}
        return sa.create_engine(
            self.url.url,
            connect_args=arguments,
            poolclass=NullPool,
            hide_parameters=True,
        )


def _may_pass(err: DBAPIError) -> bool:
    """Whether what failed may work a little later."""
    if isinstance(err.orig, sqlite3.Error):
        return "locked" in str(err.orig)
    return isinstance(err, OperationalError | InterfaceError)


_REMEDIES = {
    "permission denied": "ask its owner for the rights to SELECT and INSERT on collage_log, or "
    "replay, which only reads",
    "readonly": "make file and folder writable, or replay, which only reads",
    "password": "set it in ~/.pgpass or PGPASSWORD, or in the URL",
    "does not exist": "create it, for example with createdb",
    "unable to open": "see that its folder is there and may be written",
    "not a database": "choose another file",
    "locked": "another process writes to it for that long",
    "connection": "see that the server runs and that host and port are right",
}


def _remedy(reason: str) -> str:
    return next((f"; {remedy}" for sign, remedy in _REMEDIES.items() if sign in reason), "")
