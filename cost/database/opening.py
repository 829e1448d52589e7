"""A log by what a user calls it: a file's path, or a database's URL."""

from __future__ import annotations

from pathlib import Path

from collage.backends.storage.log_url import LogUrl, is_database_url
from collage.cost.database._base import Database
from collage.cost.database.jsonl import JsonLinesDatabase


def log_place(log: str | Path) -> Path | LogUrl:
    """Where a log is.

    Raises
    ------
    LogError
        When it is a URL of no database that a log can be in.

    Examples
    --------
    >>> log_place("logs/resnet50.jsonl").name
    'resnet50.jsonl'
    >>> log_place("postgresql://ann:hush@db.lab/collage")
    LogUrl('postgresql+psycopg://ann:***@db.lab/collage')
    """
    return LogUrl(str(log)) if is_database_url(log) else Path(log).absolute()


def open_database(log: str | Path | LogUrl | None = None, *, read_only: bool = False) -> Database:
    """A log, wherever it is; made where it is not there.

    Parameters
    ----------
    log : str, Path or LogUrl, optional
        As :func:`log_place` takes and gives it; None for one in memory.
    read_only : bool
        Never write; the log must exist.

    Returns
    -------
    Database
        A file's, in memory without a log, or one of SQL for a URL.

    Raises
    ------
    LogError
        When it cannot be read or, unless ``read_only``, written.

    Examples
    --------
    >>> type(open_database("team.jsonl")).__name__, type(open_database("sqlite:///t.db")).__name__
    ('JsonLinesDatabase', 'SqlDatabase')
    """
    place = log_place(log) if isinstance(log, str) else log
    if not isinstance(place, LogUrl):
        return JsonLinesDatabase(place, read_only=read_only)
    # SQLAlchemy is imported where it is used, for not everybody has it.
    from collage.cost.database.sql import SqlDatabase

    return SqlDatabase(place, read_only=read_only)
