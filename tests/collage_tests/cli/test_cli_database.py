"""``collage log`` and the others on a log that is a database."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from collage.backends.storage import TuningRecord
from collage.backends.storage.tuning_record import blob_line
from collage.cli import main
from collage.cost.database import open_database
from collage.testing.database_contract import record_of
from tests.postgres import Server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'team.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.url(f"cli{abs(hash(tmp_path))}")


@pytest.fixture
def lines() -> list[str]:
    """Every kind of line, in any order, some more than once, as any program may write them."""
    found = [record_of(f"w{i % 30}", 1e-3 + i / 7).to_json() for i in range(40)]
    found += [TuningRecord("toy", 1, {"n": i % 3}, {"name": "x"}, {}).to_json() for i in range(5)]
    found += [blob_line(bytes(i)) for i in range(3)]
    found += [json.dumps(json.loads(record_of("ünïcödé 🙂").to_json()), ensure_ascii=False)]
    found += [record_of("spaces").to_json() + " \r"]
    random.shuffle(found)
    return found + found[:10]


def test_a_file_comes_back_byte_for_byte(
    url: str, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, back = tmp_path / "first.jsonl", tmp_path / "back.jsonl"
    first.write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert main(["log", "import", str(first), url]) == 0
    assert f"{len(lines)} lines added, 0 unreadable" in capsys.readouterr().out
    assert main(["log", "import", str(first), url]) == 0
    assert ": 0 lines added" in capsys.readouterr().out
    assert main(["log", "export", url, str(back)]) == 0
    assert f"{back}: {len(lines)} lines of" in capsys.readouterr().out
    assert back.read_bytes() == first.read_bytes()
    # Every command says the same of either.
    said = []
    for log in (str(first), url):
        assert main(["log", log, "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out))
        assert main(["explain", log]) == 0
        said[-1]["ranking"] = capsys.readouterr().out
        said[-1].pop("log")
    assert said[0] == said[1] and said[0]["records"] == 32
    assert main(["log", "export", url, str(back)]) == 2
    assert "exists" in capsys.readouterr().err


def test_foreign_and_torn_lines_are_reported_as_those_of_a_file(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.jsonl"
    foreign = [b"hello", b'{"some": "object"}', b"\xff\xfe", b"", record_of().to_json().encode()]
    file.write_bytes(b"\n".join([*foreign, b"cos\nsystem\n(S'true'\ntR.", b'{"schema": 1, "to']))
    assert main(["log", "import", str(file), url]) == 0
    captured = capsys.readouterr()
    assert "1 lines added, 8 unreadable" in captured.out
    wanted = [f"{file} {problem}: left out" for problem in open_database(file).problems]
    assert captured.err.splitlines() == wanted
    assert list(open_database(url).lines()) == [record_of().to_json()]


def test_logs_of_both_kinds_are_merged(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    open_database(file).append(record_of("x", 1.0))
    open_database(file).append(record_of("y"))
    open_database(url).append(record_of("x", 2.0))
    open_database(url).append(record_of("y"))
    assert main(["log", "merge", str(file), url, "-o", str(out)]) == 0
    assert f"{out}: 3 records from 2 logs (1 repeated, 0" in capsys.readouterr().out
    wanted = [record_of("x", 1.0), record_of("y"), record_of("x", 2.0)]
    assert out.read_text().splitlines() == [record.to_json() for record in wanted]
    assert main(["log", "merge", str(out), "-o", url]) == 0
    assert len(list(open_database(url).lines())) == 3


def test_migrate_says_what_it_did(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "migrate", url]) == 0
    assert "was no log" in capsys.readouterr().out
    assert main(["log", "migrate", url]) == 0
    assert "is up to date" in capsys.readouterr().out
    assert len(open_database(url)) == 0


@pytest.mark.parametrize(
    "command",
    [
        ["log", "URL"],
        ["log", "migrate", "URL"],
        ["log", "export", "URL", "new.jsonl"],
        ["log", "import", "old.jsonl", "URL"],
        ["log", "merge", "old.jsonl", "-o", "URL"],
        ["explain", "URL"],
        ["optimize", "model.onnx", "-t", "llvm", "-o", "bundle", "--log", "URL"],
        ["optimize", "model.onnx", "-t", "llvm", "-o", "bundle", "--replay", "--log", "URL"],
    ],
)
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://ann:hush@127.0.0.1:1/collage?password=hush", "see that the server runs"),
        ("mysql://ann:hush@db/collage?password=hush", "no log can be in"),
        ("postgresql://ann:hush@db:port/collage", "is no URL of a database"),
    ],
)
def test_what_cannot_be_used_is_one_line_without_the_password(
    command: list[str],
    url: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").touch()
    open_database("old.jsonl").append(record_of())
    assert main([url if part == "URL" else part for part in command] + ["--debug"]) == 2
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert said in last and last.startswith("error: ")
    assert "hush" not in captured.err + captured.out


def test_a_database_that_is_not_there_is_not_made_by_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "none.db"
    for command in (["log", f"sqlite:///{place}"], ["explain", f"sqlite:///{place}"]):
        assert main(command) == 2
        assert "cannot be read: the database holds no log" in capsys.readouterr().err
    assert not place.exists()
    assert main(["log", "migrate", "team.jsonl"]) == 2
    assert "is no URL of a database" in capsys.readouterr().err
