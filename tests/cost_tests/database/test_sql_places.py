"""What a database's URL means, what is shown of it, and how what is wrong with it is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from collage.backends.contract.errors import LogError
from collage.backends.storage.log_url import LogUrl, is_database_url
from collage.cost.database import JsonLinesDatabase, open_database
from collage.cost.database.sql import SqlDatabase
from collage.testing.database_contract import KEY, record_of
from tests.postgres import PASSWORD, USER, Server


@pytest.mark.parametrize(
    "file",
    ["log.jsonl", "C:\\x.jsonl", "C:/x.jsonl", "a:b.jsonl", "sqlite:team.db", "./a//b", "é:"],
)
def test_anything_else_is_a_file(file: str) -> None:
    assert not is_database_url(file) and not is_database_url(Path("sqlite:///team.db"))


def test_a_file_with_a_colon_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_database("a:b.jsonl").append(record_of())
    assert JsonLinesDatabase(tmp_path / "a:b.jsonl").lookup(KEY) == record_of()


def test_a_file_of_sqlite_is_that_of_the_folder_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = LogUrl("sqlite:///team.db")
    monkeypatch.chdir("/")
    open_database(url).append(record_of())
    assert url.file == tmp_path / "team.db" and url.file.exists()
    assert LogUrl(url.secret).file == url.file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mysql://ann:hush@db/collage", "no log can be in 'mysql'"),
        ("postgresql+asyncpg://ann:hush@db/collage", "no log can be in 'postgresql"),
        ("postgresql+psycopg2://ann:hush@db/collage", r"postgresql\+psycopg;"),
        ("postgresql://ann:hush@db:port/collage", "is no URL of a database; write for example"),
        ("postgresql://ann:hush@[::1/collage?password=hush", "is no URL"),
        ("file:///x.jsonl?token=hush", "no log can be in 'file'"),
        ("sqlite://", "names no file; write sqlite:///team.db"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite://ann:hush@host/x", "names no file"),
        ("sqlite:///x.db?key=hush", "names no file"),
    ],
)
def test_a_url_that_cannot_be_used_is_named_without_its_password(text: str, said: str) -> None:
    with pytest.raises(LogError, match=said) as caught:
        open_database(text)
    everything = f"{caught.value} {caught.value!r} {caught.value.value} {caught.value.__cause__}"
    assert "hush" not in everything and "\n" not in str(caught.value)


def test_no_password_is_ever_shown() -> None:
    query = "sslmode=require&password=hush&sslpassword=hush2&options=-chush%3Dx"
    url = LogUrl(f"postgresql://ann:hush%2Fhush%40%3F@db.lab/collage?{query}")
    for text in (str(url), repr(url), url.name, f"{url}", repr({"log": url})):
        assert "hush" not in text
    assert url.name.endswith("ann:***@db.lab/collage?sslmode=require")
    said = url.masked("no 'hush/hush@?' and no hush2, hush either\nsecond line")
    assert said == "no '***' and no ***, *** either"
    assert "hush" in url.secret


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
@pytest.mark.parametrize("rest", ["?hush@db.lab/collage", "hush@db/collage", "/hush@?hush@db/x"])
def test_a_password_with_characters_that_are_not_quoted_is_not_shown_in_pieces(
    kind: str, rest: str
) -> None:
    with pytest.raises(LogError, match="%2F %3F %40") as caught:
        LogUrl(f"{kind}://ann:hush@{rest}")
    assert "hush" not in str(caught.value)


def test_an_option_that_the_server_does_not_know_is_named() -> None:
    with pytest.raises(LogError, match="PostgreSQL knows no option 'sslmood'"):
        LogUrl("postgresql://db.lab/collage?sslmood=require")


def test_a_missing_library_is_named_with_what_installs_it(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "sys.modules[sys.argv[1]] = None\n"
        "from collage.cost.database import open_database\n"
        "from collage.backends.contract.errors import LogError\n"
        "try:\n"
        "    open_database(sys.argv[2])\n"
        "except LogError as err:\n"
        "    print(err)\n"
    )
    for module, url in (
        ("sqlalchemy", "sqlite:///x.db"),
        ("alembic", "sqlite:///x.db"),
        ("psycopg", "postgresql://ann:hush@db/collage"),
    ):
        command = [sys.executable, "-c", program, module, url]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "pip install 'collage-tvm[database]'" in done.stdout, done.stdout
        assert "hush" not in done.stdout and done.stdout.count("\n") == 1


def test_a_place_that_cannot_be_used_is_named_with_what_mends_it(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be looked at " * 10)
    for place, said in (
        (tmp_path / "no" / "folder.db", "unable to open database file; see that its folder"),
        (tmp_path / "text", "not a database; choose another file"),
        (tmp_path, "unable to open"),
    ):
        with pytest.raises(LogError, match=said):
            SqlDatabase(f"sqlite:///{place}")
    with pytest.raises(LogError, match=r"cannot be read: .*; see that the server runs") as caught:
        SqlDatabase("postgresql://ann:hush@127.0.0.1:1/collage")
    assert "hush" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_protected_file_is_refused_unless_it_is_only_read(tmp_path: Path) -> None:
    place = tmp_path / "team.db"
    SqlDatabase(f"sqlite:///{place}").append(record_of())
    place.chmod(0o444)
    with pytest.raises(LogError, match=r"cannot be written: .*readonly.*; make file and folder"):
        SqlDatabase(f"sqlite:///{place}")
    assert len(SqlDatabase(f"sqlite:///{place}", read_only=True)) == 1


def test_who_may_not_log_in_or_write_is_told_so(postgres: Server) -> None:
    good = postgres.url("rights")
    SqlDatabase(good).append(record_of())
    wrong = postgres.url("rights", f"{USER}:{quote(PASSWORD + 'er', safe='')}")
    with pytest.raises(LogError, match=r"password authentication failed.*; set it in") as caught:
        SqlDatabase(wrong)
    assert "hush" not in str(caught.value) and "hush" not in str(caught.value.value)
    url = postgres.url("rights", f"{USER}:{quote(PASSWORD, safe='')}")
    with postgres.connection() as connection:
        connection.execute(f'GRANT USAGE ON SCHEMA "rights" TO {USER}')
    with pytest.raises(LogError, match="cannot be read: permission denied"):
        SqlDatabase(url)
    with postgres.connection() as connection:
        connection.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "rights" TO {USER}')
    with pytest.raises(LogError, match=r"written: permission denied .* replay, which"):
        SqlDatabase(url)
    assert SqlDatabase(url, read_only=True).lookup(KEY) == record_of()
    with postgres.connection() as connection:
        connection.execute(f'GRANT INSERT ON ALL TABLES IN SCHEMA "rights" TO {USER}')
        connection.execute(f'GRANT USAGE ON ALL SEQUENCES IN SCHEMA "rights" TO {USER}')
    SqlDatabase(url).append(record_of("more"))
    assert len(SqlDatabase(good)) == 2
