"""The schema of a log in a database: its version, and how an older one becomes the newest.

Versions are Alembic's revisions (``migrations/``), kept in a table of the log's own: other
programs, Optuna among them, keep theirs in Alembic's default one in the same database. A new log is
made at the newest. An older one is brought up to date when that is asked for, and only then: others
of the team may still run the release that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from collage.backends.contract.errors import LogError
from collage.backends.storage.log_engine import LogEngine
from collage.backends.storage.log_table import LOG

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0002"
"""The newest revision."""

VERSION_TABLE = "collage_log_version"

_SCRIPTS = "collage.cost.database:migrations"

_LOCK = 0x636F6C6C616765
"""Of PostgreSQL's advisory locks the one that is held while tables are made or changed."""

_PROBE = b"probe"


def version(engine: LogEngine) -> str | None:
    """The revision of a log; None where there is no log.

    Raises
    ------
    LogError
        When it cannot be reached or read.
    """
    path = engine.url.file
    if path is not None and not path.exists():
        return None
    return engine.first(_version, "read")


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    found = sa.text(f"SELECT version_num FROM {VERSION_TABLE}")
    return connection.execute(found).scalar_one_or_none()


def create(engine: LogEngine) -> None:
    """Make a log; nothing where another process has just made it.

    Raises
    ------
    LogError
        When it cannot be written.
    """

    def make(connection: sa.Connection) -> None:
        _lock(connection)
        if _version(connection) is None:
            _upgrade(connection)

    engine.first(make, "written")


def migrate(engine: LogEngine) -> tuple[str | None, str]:
    """Bring a log up to date; others wait meanwhile, or see the old one.

    Returns
    -------
    before : str or None
        The revision that it had; None where there was no log.
    after : str
        The one that it has.

    Raises
    ------
    LogError
        When it is of a newer release, or cannot be written.
    """

    def work(connection: sa.Connection) -> str | None:
        _lock(connection)
        found = _version(connection)
        if found is not None and found not in _known():
            raise _too_new(engine, found)
        if found != HEAD:
            _upgrade(connection)
        return found

    return engine.first(work, "written"), HEAD


def refuse_unless_head(engine: LogEngine, found: str) -> None:
    """Raise for a log of another release.

    Parameters
    ----------
    engine : LogEngine
        The database.
    found : str
        The revision of the log.

    Raises
    ------
    LogError
        Says how to mend it.
    """
    if found not in _known():
        raise _too_new(engine, found)
    if found != HEAD:
        raise LogError(
            f"log '{engine.url}' has tables of an earlier release (schema {found}, not {HEAD}); "
            "'collage log migrate URL' brings them up to date, after which that release cannot "
            "use them any more",
            value=found,
        )


def check_writable(engine: LogEngine) -> None:
    """See that a line can be added, before anything is measured; none is.

    Raises
    ------
    LogError
        When it cannot.
    """

    def probe(connection: sa.Connection) -> None:
        row = {"kind": "probe", "key": _PROBE, "digest": _PROBE, "occurrence": 0, "line": ""}
        with connection.begin_nested() as nested:
            connection.execute(sa.insert(LOG), row)
            nested.rollback()

    engine.first(probe, "written")


def _lock(connection: sa.Connection) -> None:
    """Until the transaction ends; SQLite has only one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def _upgrade(connection: sa.Connection) -> None:
    config = _config()

    from alembic import command

    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _known() -> set[str]:
    config = _config()

    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(config)
    return {script.revision for script in scripts.walk_revisions()}


def _config() -> Config:
    try:
        from alembic.config import Config
    except ModuleNotFoundError as err:
        raise LogError(
            "making the tables of a log needs Alembic; pip install 'collage-tvm[database]'",
            value="alembic",
        ) from err
    config = Config()
    config.set_main_option("script_location", _SCRIPTS)
    config.set_main_option("path_separator", "os")
    return config


def _too_new(engine: LogEngine, found: str) -> LogError:
    return LogError(
        f"log '{engine.url}' was made by a newer release (schema {found}); "
        "pip install -U collage-tvm",
        value=found,
    )
