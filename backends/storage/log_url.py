"""A log's URL: which database it means, and how it is shown without its password."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from collage.backends.contract.errors import LogError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+._-]+://")
"""A scheme of at least two letters: ``C:\\log.jsonl`` and ``a:b.jsonl`` are files."""

_DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
"""The driver of each kind of database; bare names of kinds mean these."""

_SHOWN_OPTIONS = {
    "host",
    "port",
    "dbname",
    "user",
    "sslmode",
    "application_name",
    "connect_timeout",
}
"""Options of a URL that are never secret. Others are left out where it is shown."""

_REMEDY = "write for example sqlite:///team.db or postgresql+psycopg://user@host/collage"

_HIDDEN = "***"


class LogUrl:
    """Where a database is, with its password, which is never shown.

    Parameters
    ----------
    text : str
        As SQLAlchemy writes URLs. A relative path of an SQLite file becomes absolute.

    Attributes
    ----------
    secret : str
        The whole of it. For drivers and worker processes, never for messages.
    name : str
        Without passwords; ``str`` and ``repr`` give it, too.

    Raises
    ------
    LogError
        When it names no database that a log can be in, or SQLAlchemy or the driver is missing.

    Examples
    --------
    >>> LogUrl("postgresql://ann:hush@db.lab/collage?sslmode=require&sslpassword=hush").name
    'postgresql+psycopg://ann:***@db.lab/collage?sslmode=require'
    """

    def __init__(self, text: str) -> None:
        self.url = _parsed(text)
        self.secret = self.url.render_as_string(hide_password=False)
        self.name = _shown(self.url)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"LogUrl('{self.name}')"

    @property
    def file(self) -> Path | None:
        """Of SQLite the file, otherwise None."""
        is_file = self.url.get_backend_name() == "sqlite"
        return Path(self.url.database or "") if is_file else None

    def masked(self, message: str) -> str:
        """A driver's message in one line, in which nothing secret of this URL stands."""
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        line = lines[0] if lines else "for no stated reason"
        for secret in self._secrets:
            line = line.replace(secret, _HIDDEN)
        return line

    @cached_property
    def _secrets(self) -> list[str]:
        secrets = {self.url.password}
        for name, value in self.url.query.items():
            if name not in _SHOWN_OPTIONS:
                secrets |= {value} if isinstance(value, str) else set(value)
        # The longest first: one may contain another.
        return sorted(filter(None, secrets), key=len, reverse=True)


def is_database_url(log: str | Path) -> bool:
    """Whether a log is named by a URL; otherwise it is a file.

    Examples
    --------
    >>> [is_database_url(log) for log in ("sqlite:///a.db", "a:b.jsonl", Path("a.jsonl"))]
    [True, False, False]
    """
    return isinstance(log, str) and _URL.match(log) is not None


def without_urls(text: str) -> str:
    """A text in which of each URL only the scheme stands.

    Parameters
    ----------
    text : str
        For example a message that could not be read, of which a piece is going to be shown.

    Examples
    --------
    >>> without_urls('{"log": "postgresql://ann:hush@db.lab/collage"}')
    '{"log": "postgresql://***"}'
    """
    return re.sub(rf"({_URL.pattern})[^\s'\"]*", rf"\1{_HIDDEN}", text)


def _parsed(text: str) -> URL:
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ModuleNotFoundError as err:
        raise LogError(
            f"log '{_guess(text)}' is in a database, which needs SQLAlchemy; "
            "pip install 'collage-tvm[database]'",
            value=_guess(text),
        ) from err
    if text.count("@") > 1 and not text.startswith("sqlite"):
        # Nothing of it is shown: pieces of a password would be.
        raise LogError(
            "a URL of a database has an @ too many; write characters such as / ? @ of a password "
            "as %2F %3F %40",
            value="",
        )
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # Not chained: their messages may hold the password.
        raise LogError(f"'{_guess(text)}' is no URL of a database; {_REMEDY}", value="") from None
    return _checked(url)


def _checked(url: URL) -> URL:
    kind, _, driver = url.drivername.partition("+")
    if kind not in _DRIVERS or driver not in ("", _DRIVERS[kind]):
        known = ", ".join(f"{one}+{driver}" for one, driver in _DRIVERS.items())
        raise LogError(
            f"log '{_shown(url)}': no log can be in '{url.drivername}', but in {known}; {_REMEDY}",
            value=url.drivername,
        )
    if kind == "sqlite":
        if url.database in (None, "", ":memory:") or url.host or url.query:
            raise LogError(
                f"log '{_shown(url)}' names no file; write sqlite:///team.db for one in this "
                "folder, sqlite:////data/team.db for any other",
                value=_shown(url),
            )
        return url.set(drivername=kind, database=str(Path(url.database or "").absolute()))
    url = url.set(drivername=f"{kind}+{_DRIVERS[kind]}")
    try:
        from psycopg import pq
    except ImportError as err:
        raise LogError(
            f"log '{_shown(url)}' needs PostgreSQL's driver psycopg, which cannot be imported "
            f"({err}); pip install 'collage-tvm[database]'",
            value=_shown(url),
        ) from err
    options = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    if unknown := url.query.keys() - options:
        raise LogError(
            f"log '{_shown(url)}': PostgreSQL knows no option '{min(unknown)}'", value=min(unknown)
        )
    return url


def _shown(url: URL) -> str:
    query = {k: v for k, v in url.query.items() if k in _SHOWN_OPTIONS}
    return url.set(query=query).render_as_string(hide_password=True)


def _guess(text: str) -> str:
    """What may be shown of a text that could not be parsed."""
    front = re.sub(r"://.*@", f"://{_HIDDEN}@", text, flags=re.DOTALL)
    return front.partition("?")[0]
