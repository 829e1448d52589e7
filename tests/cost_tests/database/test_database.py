"""A log that is a file: its lines are named, typed, torn, foreign, and shared with backends."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.backends.contract.errors import LogError
from collage.backends.storage import TuningRecord, TuningStore
from collage.cost.base import Cost, CostStatus
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.record import Record
from collage.testing import DatabaseContract
from collage.testing.database_contract import KEY, record_of


class TestJsonLines(DatabaseContract):
    database = JsonLinesDatabase


def workloads(database: JsonLinesDatabase) -> list[str]:
    return [record.key.workload for record in database.records()]


def test_without_a_path_records_stay_in_memory() -> None:
    database = JsonLinesDatabase()
    database.append(record_of())
    database.refresh()
    assert database.lookup(KEY) is not None
    assert database.extend([record_of("x").to_json(), record_of().to_json()]) == 1
    assert workloads(database) == [KEY.workload, "x"]


def test_what_others_append_is_seen_after_a_refresh(tmp_path: Path) -> None:
    one, other = (JsonLinesDatabase(tmp_path / "log.jsonl") for _ in range(2))
    one.append(record_of())
    assert other.lookup(KEY) is None
    other.refresh()
    assert other.lookup(KEY) is not None


@pytest.mark.parametrize("cut", [1, 10, 200, -1])
def test_a_torn_last_line_is_skipped_and_reported_and_the_next_record_is_kept(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "log.jsonl"
    torn = record_of("first").to_json() + "\n" + record_of("torn").to_json()[:cut]
    path.write_text(torn)
    database = JsonLinesDatabase(path)
    assert workloads(database) == ["first"] and len(list(database.lines())) == 1
    assert [(p.line, "torn" in p.reason) for p in database.problems] == [(2, True)]
    assert path.read_text() == torn, "reading changes nothing"
    database.append(record_of("after"))
    again = JsonLinesDatabase(path)
    assert workloads(again) == ["first", "after"]
    assert [problem.line for problem in again.problems] == [2]


def test_logs_merge_by_concatenation_and_the_last_record_counts(tmp_path: Path) -> None:
    a, b, both = (tmp_path / name for name in ("a", "b", "both"))
    JsonLinesDatabase(a).append(record_of("x", 1.0))
    JsonLinesDatabase(a).append(record_of("y", 1.0))
    JsonLinesDatabase(b).append(record_of("x", 2.0))
    both.write_bytes(a.read_bytes() + b.read_bytes())
    merged = {r.key.workload: r.cost.median_sec for r in JsonLinesDatabase(both).records()}
    assert merged == {"x": 2.0, "y": 1.0}


@pytest.mark.parametrize("place", ["no/such/folder/log.jsonl", "a folder", "a file/log.jsonl"])
def test_a_log_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a file").touch()
    path = tmp_path / place
    with pytest.raises(LogError, match=f"log '{path}' cannot be"):
        JsonLinesDatabase(path).append(record_of())


def test_every_field_is_named_with_its_unit(tmp_path: Path) -> None:
    value = json.loads(record_of().to_json())
    assert value["median_sec"] == pytest.approx(1e-3)
    assert value["target"]["backend"] == "onednn" and value["config"] == {"repeat": 10}
    numbers = {k for k, v in value.items() if isinstance(v, float)}
    assert all(name.endswith("_sec") or name == "largest_error" for name in numbers)


@given(st.text(), st.floats(1e-9, 1e3), st.lists(st.floats(1e-9, 1e3), min_size=1))
def test_any_record_survives_its_line(text: str, median: float, samples: list[float]) -> None:
    cost = Cost(CostStatus.VALID, median, 0.1, tuple(samples), "")
    original = Record(dataclasses.replace(KEY, compiler=text), cost, text)
    line = original.to_json()
    assert "\n" not in line and Record.from_json(line) == original


def test_what_backends_tuned_stands_between_the_measurements(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    database = JsonLinesDatabase(path)
    database.append(record_of("before"))
    tuning = TuningStore("toy", 1, tmp_path / "cache.jsonl", path)
    device = {"name": "a toy", "compute_capability": 1}
    for best in (1, 2):
        tuning.append({"kernel": "relu"}, device, {"best": best})
    database.append(record_of("after"))
    again = JsonLinesDatabase(path)
    assert [r.key.workload for r in again.records()] == ["before", "after"]
    assert again.problems == [] and len(again) == 2
    (found,) = again.findings()
    assert found == TuningRecord("toy", 1, {"kernel": "relu"}, device, {"best": 2})
    merged = tmp_path / "merged.jsonl"
    merged.write_bytes(path.read_bytes() + (tmp_path / "cache.jsonl").read_bytes())
    together = JsonLinesDatabase(merged)
    assert list(together.records()) == list(again.records())
    assert list(together.findings()) == [found] and together.problems == []
    path.write_text('{"kind": "tuning", "backend": "toy", "schema": 1}\n')
    assert [str(p) for p in JsonLinesDatabase(path).problems] == ["line 1 has no valid 'key'"]


def test_foreign_lines_are_skipped_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = json.loads(record_of().to_json())
    lines = [
        b"hello",
        json.dumps([1, 2]).encode(),
        json.dumps({"some": "object"}).encode(),
        json.dumps({**good, "schema": 99}).encode(),
        json.dumps({**good, "num_threads": "two"}).encode(),
        json.dumps({**good, "status": "splendid"}).encode(),
        json.dumps({**good, "samples_sec": ["x"]}).encode(),
        json.dumps({**good, "versions": None}).encode(),
        json.dumps({**good, "versions": {"tvm": {}}}).encode(),
        b"\xff\xfe\x00",
        b"",
        record_of("kept").to_json().encode(),
        b"cos\nsystem\n(S'true'\ntR.",  # A pickle; text to us.
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    database = JsonLinesDatabase(path)
    assert [r.key.workload for r in database.records()] == ["kept"]
    problems = {p.line: p.reason for p in database.problems}
    assert sorted(problems) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16]
    assert problems[1].startswith("is no JSON") and problems[3] == "is no measurement"
    assert problems[4] == "is of schema 99, not 1" and problems[5] == "has no valid 'num_threads'"
    assert str(database.problems[0]).startswith("line 1 is no JSON")


def test_a_log_on_a_full_disk_is_named() -> None:
    with pytest.raises(LogError, match="log '/dev/full' cannot be"):
        JsonLinesDatabase(Path("/dev/full")).append(record_of())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_protected_log_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.touch(mode=0o444)
    with pytest.raises(LogError, match="cannot be written"):
        JsonLinesDatabase(path)
