"""Versions of a database's tables: made at the newest, migrated when asked, refused otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from collage.backends.contract.errors import LogError
from collage.backends.storage import TuningRecord
from collage.backends.storage.log_engine import LogEngine
from collage.backends.storage.log_table import LOG, METADATA
from collage.backends.storage.log_url import LogUrl
from collage.backends.storage.tuning_record import blob_line
from collage.cost.database import schema
from collage.cost.database.sql import SqlDatabase, entry_of
from collage.testing.database_contract import KEY, record_of
from tests.postgres import Server

GPU = {"name": "a toy", "compute_capability": 90}
FINDING = TuningRecord("toy", 1, {"n": 1}, GPU, {"best": 2})
LINES = [
    record_of("x", 1.0).to_json(),
    FINDING.to_json(),
    TuningRecord("toy", 1, {"n": 2}, {"name": "unknown"}, {}).to_json(),
    blob_line(b"bytes"),
    record_of("x", 2.0).to_json(),
    record_of().to_json(),
]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'team.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.url(f"schema{abs(hash(tmp_path))}")


def make_at(url: str, revision: str) -> None:
    """The tables of an earlier release, with a log in them."""
    config = schema._config()

    def make(connection: sa.Connection) -> None:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        names = {column["name"] for column in sa.inspect(connection).get_columns(LOG.name)}
        for line in LINES:
            entry = entry_of(line)
            row = {"kind": entry.kind, "key": entry.key, "line": line, "occurrence": 0}
            row["digest"] = line.encode()[-32:]
            columns = [sa.column(name) for name in names - {"id"}]
            table = sa.table(LOG.name, *columns)
            connection.execute(sa.insert(table), {k: v for k, v in row.items() if k in names})

    LogEngine(LogUrl(url)).first(make, "written")


def test_the_newest_revision_is_what_the_code_reads() -> None:
    assert ScriptDirectory.from_config(schema._config()).get_heads() == [schema.HEAD]


def test_migrations_lead_to_the_tables_of_the_code(url: str) -> None:
    engine = SqlDatabase(url)._table.engine

    def differences(connection: sa.Connection) -> list[object]:
        names = {LOG.name}
        options = {"include_name": lambda name, kind, _: kind != "table" or name in names}
        return list(
            compare_metadata(MigrationContext.configure(connection, opts=options), METADATA)
        )

    assert engine.read(differences) == []


def test_an_older_log_is_refused_until_it_is_migrated_and_loses_nothing(url: str) -> None:
    make_at(url, "0001")
    for read_only in (False, True):
        with pytest.raises(LogError, match=r"earlier release .*'collage log migrate URL'"):
            SqlDatabase(url, read_only=read_only)
    assert schema.migrate(LogEngine(LogUrl(url))) == ("0001", schema.HEAD)
    assert schema.migrate(LogEngine(LogUrl(url))) == (schema.HEAD, schema.HEAD)
    database = SqlDatabase(url)
    assert list(database.lines()) == LINES
    # What the older one could not be asked.
    assert [r.cost.median_sec for r in database.records(["x"])] == [2.0]
    assert database.devices() == [(KEY.device, KEY.driver)]
    query = sa.select(*LOG.c["line", "subject", "device"]).order_by(LOG.c.id)
    wanted = [entry_of(line) for line in LINES]
    found = database._table.engine.rows(query)
    assert [tuple(row) for row in found] == [(e.line, e.subject, e.device) for e in wanted]


def test_a_newer_log_is_refused(url: str) -> None:
    engine = SqlDatabase(url)._table.engine
    change = sa.text(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    engine.write(lambda connection: connection.execute(change).rowcount)
    for use in (SqlDatabase, lambda url: schema.migrate(LogEngine(LogUrl(url)))):
        with pytest.raises(LogError, match=r"newer release \(schema 9999\); pip install -U"):
            use(url)


def test_other_programs_tables_in_the_same_database_are_left_alone(url: str) -> None:
    study = optuna.create_study(storage=url, study_name="theirs")
    study.tell(study.ask(), 1.0)
    SqlDatabase(url).append(record_of())
    again = optuna.load_study(storage=url, study_name="theirs")
    assert again.best_value == 1.0 and len(SqlDatabase(url)) == 1


_OPENER = """
import sys
sys.modules["torch"] = None
from collage.cost.database import open_database
from collage.testing.database_contract import record_of
import os
for number in range(6):
    if os.fork() == 0:
        open_database(sys.argv[1]).append(record_of(str(number)))
        os._exit(0)
sys.exit(sum(bool(os.wait()[1]) for _ in range(6)))
"""


def test_several_may_make_it_at_the_same_time(url: str) -> None:
    assert subprocess.run([sys.executable, "-c", _OPENER, url], check=False).returncode == 0
    assert len(SqlDatabase(url)) == 6


def test_a_line_that_somebody_else_put_there_is_reported(url: str) -> None:
    database = SqlDatabase(url)
    database.append(record_of("x"))
    database.append(record_of())
    change = sa.update(LOG).where(LOG.c.line == record_of("x").to_json())
    change = change.values(line="cos\nsystem\n(S'true'\ntR.")
    database._table.engine.write(lambda connection: connection.execute(change).rowcount)
    assert database.lookup_all([record_of("x").key, KEY]) == [None, record_of()]
    assert list(database.records()) == [record_of()]
    assert [p.reason for p in database.problems] == ["is no JSON (Expecting value)"]
