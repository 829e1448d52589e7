"""A search whose log is a database: remembered there, replayed from there alone, shown nowhere."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import quote

import pytest
import tvm
from tvm.relax import op

import collage
from collage.cli import main
from collage.cost.database import JsonLinesDatabase, open_database
from collage.cost.progress import ProgressEvent
from collage.pipeline.session import open_session
from collage.testing import constant, graph
from tests.postgres import PASSWORD, USER, Server

TARGETS = ["llvm", "openblas"]


@pytest.fixture(scope="module")
def module() -> tvm.IRModule:
    weight = constant(16, 8)

    def body(emit, x):  # type: ignore[no-untyped-def]
        return op.nn.relu(op.matmul(emit(op.exp(x)), weight))

    return graph([(4, 16)], body)


@pytest.fixture
def with_password(postgres: Server, tmp_path: Path) -> str:
    name = f"search{abs(hash(tmp_path))}"
    url = postgres.url(name, f"{USER}:{quote(PASSWORD, safe='')}")
    with postgres.connection() as connection:
        connection.execute(f'ALTER SCHEMA "{name}" OWNER TO {USER}')
    return url


def test_a_session_hands_the_url_on_and_shows_no_password(with_password: str) -> None:
    session = open_session(TARGETS, log=with_password)
    assert session.context.tuning_log is None
    assert session.context.tuning_database is not None
    assert quote(PASSWORD, safe="") in session.context.tuning_database
    assert "hush" not in f"{session!r} {session.context!r} {session.database!r}"
    assert session.database.name.startswith(f"postgresql+psycopg://{USER}:***@/")


def test_a_search_is_remembered_replayed_and_exported(
    module: tvm.IRModule,
    with_password: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    events: list[ProgressEvent] = []
    result = collage.optimize(module, TARGETS, log=with_password, progress=events.append)
    bundle = result.export(tmp_path / "bundle")
    stats = result.report.search
    database = open_database(with_password, read_only=True)
    lines = list(database.lines())
    assert stats.measured and len(lines) == len(set(lines)) >= stats.measured

    again = collage.optimize(module, TARGETS, log=with_password, replay=True)
    assert again.report.search.measured == 0
    assert again.module.script() == result.module.script()
    assert list(database.lines()) == lines, "a replay leaves the log as it is"

    file = tmp_path / "log.jsonl"
    assert main(["log", "export", with_password, str(file)]) == 0
    from_file = collage.optimize(module, TARGETS, log=file, replay=True)
    assert from_file.module.script() == result.module.script()
    assert list(JsonLinesDatabase(file).lines()) == lines

    shown = [repr(event) for event in events] + [result.report.to_json(), caplog.text]
    shown += [p.read_text(errors="replace") for p in bundle.rglob("*") if p.is_file()]
    shown += list(capfd.readouterr())
    assert not any("hush" in text for text in shown)
