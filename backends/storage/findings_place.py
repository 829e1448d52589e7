"""Where the findings of a log are: a file's between its measurements, a database's in a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from collage.backends.contract import BuildContext
from collage.backends.storage.findings_file import FindingsFile, findings_file

if TYPE_CHECKING:
    from collage.backends.storage.findings_table import FindingsTable


def findings_of(context: BuildContext) -> FindingsFile | FindingsTable | None:
    """The findings of a compilation's log, wherever that is; None without one.

    Raises
    ------
    LogError
        When it is a database that cannot be used.
    """
    log = log_of(context)
    return None if log is None else findings_at(log, context.replay)


def log_of(context: BuildContext) -> Path | str | None:
    """The log of a compilation: a file, or the URL of a database; None without one."""
    return context.tuning_database or context.tuning_log


def findings_at(log: Path | str, replay: bool) -> FindingsFile | FindingsTable:
    """The findings of a log.

    Parameters
    ----------
    log : Path or str
        A file, or the URL of a database.
    replay : bool
        Whether a database has to be as it is.

    Returns
    -------
    FindingsFile or FindingsTable
        One for each log in this process.

    Raises
    ------
    LogError
        When it is a database that cannot be used.
    """
    if isinstance(log, Path):
        return findings_file(log)
    # SQLAlchemy is imported where it is used, for not everybody has it.
    from collage.backends.storage.findings_table import findings_table

    return findings_table(log, replay)
