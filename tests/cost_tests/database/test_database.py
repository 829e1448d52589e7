"""The log: exact keys, torn and foreign lines, several writers, places that cannot be written."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.backends.contract.errors import LogError
from collage.backends.storage.tuning_record import TuningRecord
from collage.backends.storage.tuning_store import TuningStore
from collage.cost.base import Cost, CostStatus
from collage.cost.database.jsonl import Database
from collage.cost.database.record import PARTITION, SCHEMA_VERSION, Record, RecordKey

KEY = RecordKey(
    kind=PARTITION,
    workload="ab" * 32,
    tensors="1x8x6x6:float32 -> 1x4x6x6:float32",
    target='{"backend": "onednn", "device": {"kind": "llvm"}, "options": {}}',
    versions=(("oneDNN", "3.2"), ("onednn codegen", "0123")),
    compiler="g++ 12",
    tvm="0.27, ffi 0.1.14",
    device="some CPU, 2 cores, isa 77",
    driver="none",
    num_threads=2,
    config='{"repeat": 10}',
)


def record(workload: str = "ab" * 32, median: float = 1e-3) -> Record:
    key = dataclasses.replace(KEY, workload=workload)
    cost = Cost.of_samples([0.9 * median, median, 1.1 * median])
    return Record(key, cost, "conv", "onednn", 1e-6, 0.1, 0.2, 0.3, "2026-01-01T00:00:00+00:00")


def test_what_is_appended_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    bad = Record(
        dataclasses.replace(KEY, workload="bad"),
        Cost(CostStatus.CRASHED, reason="died of SIGSEGV"),
        largest_error=math.inf,
    )
    database = Database(path)
    database.append(record())
    database.append(bad)
    again = Database(path)
    assert again.records() == [record(), bad]
    found = again.lookup(KEY)
    assert found is not None and found.cost == record().cost
    failed = again.lookup(bad.key)
    assert failed is not None and failed.cost == bad.cost and math.isinf(failed.cost.median_sec)
    assert not again.problems


OTHER_VALUES = {
    "kind": "end_to_end",
    "workload": "cd" * 32,
    "tensors": "1x9:float32 -> 1x9:float32",
    "target": '{"backend": "onednn", "device": {"kind": "llvm"}, "options": {"a": 1}}',
    "versions": (("oneDNN", "3.3"), ("onednn codegen", "0123")),
    "compiler": "g++ 13",
    "tvm": "0.28, ffi 0.1.14",
    "device": "another CPU, 2 cores, isa 77",
    "driver": "555",
    "num_threads": 4,
    "config": '{"repeat": 11}',
    "schema": SCHEMA_VERSION + 1,
}


def test_the_next_test_changes_every_field_of_the_key() -> None:
    assert set(OTHER_VALUES) == {field.name for field in dataclasses.fields(RecordKey)}


@pytest.mark.parametrize("field", OTHER_VALUES)
def test_any_difference_in_the_key_is_a_miss(tmp_path: Path, field: str) -> None:
    path = tmp_path / "log.jsonl"
    Database(path).append(record())
    other = dataclasses.replace(KEY, **{field: OTHER_VALUES[field]})
    assert Database(path).lookup(other) is None
    assert Database(path).lookup(KEY) is not None


def test_every_field_is_named_with_its_unit(tmp_path: Path) -> None:
    value = json.loads(record().to_json())
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
    database = Database(path)
    database.append(record("before"))
    tuning = TuningStore("toy", 1, tmp_path / "cache.jsonl", path)
    device = {"name": "a toy", "compute_capability": 1}
    for best in (1, 2):
        tuning.append({"kernel": "relu"}, device, {"best": best})
    database.append(record("after"))
    again = Database(path)
    assert [r.key.workload for r in again.records()] == ["before", "after"]
    assert again.problems == [] and len(again) == 2
    (found,) = again.findings()
    assert found == TuningRecord("toy", 1, {"kernel": "relu"}, device, {"best": 2})
    merged = tmp_path / "merged.jsonl"
    merged.write_bytes(path.read_bytes() + (tmp_path / "cache.jsonl").read_bytes())
    assert Database(merged).records() == again.records()
    assert (Database(merged).findings(), Database(merged).problems) == ([found], [])
    path.write_text('{"kind": "tuning", "backend": "toy", "schema": 1}\n')
    assert [str(p) for p in Database(path).problems] == ["line 1 has no valid 'key'"]


@pytest.mark.parametrize("cut", [1, 10, 200, -1])
def test_a_torn_last_line_is_skipped_and_reported_and_the_next_record_is_kept(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "log.jsonl"
    line = record("torn").to_json()
    first = record("first").to_json()
    path.write_text(first + "\n" + line[:cut])
    database = Database(path)
    assert [r.key.workload for r in database.records()] == ["first"]
    assert [(p.line, "torn" in p.reason) for p in database.problems] == [(2, True)]
    assert path.read_text() == first + "\n" + line[:cut], "reading changes nothing"
    database.append(record("after"))
    again = Database(path)
    assert [r.key.workload for r in again.records()] == ["first", "after"]
    assert [p.line for p in again.problems] == [2]


def test_foreign_lines_are_skipped_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = json.loads(record().to_json())
    lines = [
        b"hello",
        json.dumps([1, 2]).encode(),
        json.dumps({"some": "object"}).encode(),
        json.dumps({**good, "schema": 99}).encode(),
        json.dumps({**good, "num_threads": "two"}).encode(),
        json.dumps({**good, "status": "splendid"}).encode(),
        json.dumps({**good, "samples_sec": ["x"]}).encode(),
        json.dumps({**good, "versions": None}).encode(),
        b"\xff\xfe\x00",
        b"",
        record("kept").to_json().encode(),
        b"cos\nsystem\n(S'true'\ntR.",  # A pickle; text to us.
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    database = Database(path)
    assert [r.key.workload for r in database.records()] == ["kept"]
    problems = {p.line: p.reason for p in database.problems}
    assert sorted(problems) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15]
    assert problems[1].startswith("is no JSON") and problems[3] == "is no measurement"
    assert problems[4] == "is of schema 99, not 1" and problems[5] == "has no valid 'num_threads'"
    assert str(database.problems[0]).startswith("line 1 is no JSON")


def test_logs_merge_by_concatenation_and_the_last_record_counts(tmp_path: Path) -> None:
    a, b, both = (tmp_path / name for name in ("a", "b", "both"))
    Database(a).append(record("x", 1.0))
    Database(a).append(record("y", 1.0))
    Database(b).append(record("x", 2.0))
    both.write_bytes(a.read_bytes() + b.read_bytes())
    merged = {r.key.workload: r.cost.median_sec for r in Database(both).records()}
    assert merged == {"x": 2.0, "y": 1.0}


def test_another_process_s_records_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    one, other = Database(path), Database(path)
    one.append(record("one"))
    assert other.lookup(record("one").key) is None
    other.refresh()
    assert other.lookup(record("one").key) is not None
    other.append(record("other"))
    one.append(record("one more"))
    assert {r.key.workload for r in one.records()} == {"one", "other", "one more"}


_WRITER = """
import sys
from pathlib import Path
from collage.cost.database.jsonl import Database
from tests.cost_tests.database.test_database import record
database = Database(Path(sys.argv[1]))
for index in range(200):
    database.append(record(f"{sys.argv[2]}-{index}"))
"""


def test_processes_may_append_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    database = Database(path)
    assert not database.problems
    assert len(database) == 600


@pytest.mark.parametrize(
    "place", ["no/such/folder/log.jsonl", "a folder", "a file/log.jsonl", "/dev/full"]
)
def test_a_log_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a file").touch()
    path = tmp_path / place
    with pytest.raises(LogError, match=f"log '{path}' cannot be"):
        Database(path).append(record())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_protected_log_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.touch(mode=0o444)
    with pytest.raises(LogError, match="cannot be written"):
        Database(path)


def test_a_read_only_log_must_exist_and_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with pytest.raises(LogError, match="cannot be read"):
        Database(path, read_only=True)
    Database(path).append(record())
    before = path.read_bytes()
    database = Database(path, read_only=True)
    assert len(database) == 1
    with pytest.raises(LogError, match="read only"):
        database.append(record("more"))
    assert path.read_bytes() == before


def test_without_a_path_records_stay_in_memory() -> None:
    database = Database()
    database.append(record())
    database.refresh()
    assert database.lookup(KEY) is not None
