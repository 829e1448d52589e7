"""The suite that any log of measurements must pass."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from collage.backends.contract.errors import LogError
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
    denormals="flushed",
)
"""A record's key, with something in every field."""

OTHER_VALUES: dict[str, Any] = {
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
    "denormals": "ieee",
    "schema": SCHEMA_VERSION + 1,
}
"""For every field of :data:`KEY` a value that makes it another key."""

_WRITER = """
import importlib, sys
from pathlib import Path
from collage.testing.database_contract import record_of
module, name, path, writer, count = sys.argv[1:]
database = getattr(importlib.import_module(module), name)(Path(path))
for index in range(int(count)):
    database.append(record_of(f"{writer}-{index}"))
"""


def record_of(workload: str = KEY.workload, median_sec: float = 1e-3) -> Record:
    """A valid measurement of a workload, all else as in :data:`KEY`.

    Parameters
    ----------
    workload : str
        Its key.
    median_sec : float
        What it took.
    """
    key = dataclasses.replace(KEY, workload=workload)
    cost = Cost.of_samples([0.9 * median_sec, median_sec, 1.1 * median_sec])
    return Record(key, cost, "conv", "onednn", 1e-6, 0.1, 0.2, 0.3, "2026-01-01T00:00:00+00:00")


def workloads(database: Database) -> list[str]:
    """The workloads that a log knows, in order of first appearance."""
    return [record.key.workload for record in database.records()]


class DatabaseContract:
    """What a search relies on: exact keys, and a file that is never lost, torn or rewritten.

    Derive a test class and name the class under test, which is called with the log's path and,
    for a replay, ``read_only=True``. It must be importable: other processes write with it.

    Examples
    --------
    >>> class TestDatabase(DatabaseContract):
    ...     database = Database
    >>> TestDatabase().test_without_a_path_records_stay_in_memory()
    """

    database: ClassVar[type[Database]]

    # What is found.

    def test_what_is_appended_is_found_again(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        key = dataclasses.replace(KEY, workload="bad")
        crashed = Cost(CostStatus.CRASHED, reason="died of SIGSEGV")
        bad = Record(key, crashed, largest_error=math.inf)
        database = self.database(path)
        database.append(record_of())
        database.append(bad)
        again = self.database(path)
        assert again.records() == [record_of(), bad]
        found, failed = again.lookup(KEY), again.lookup(key)
        assert found is not None and found.cost == record_of().cost
        assert failed is not None and failed.cost == crashed
        assert math.isinf(failed.cost.median_sec)
        assert not again.problems

    def test_every_field_of_the_key_is_tried(self) -> None:
        assert set(OTHER_VALUES) == {field.name for field in dataclasses.fields(RecordKey)}

    @pytest.mark.parametrize("field", OTHER_VALUES)
    def test_any_difference_in_the_key_is_a_miss(self, tmp_path: Path, field: str) -> None:
        path = tmp_path / "log.jsonl"
        self.database(path).append(record_of())
        other = dataclasses.replace(KEY, **{field: OTHER_VALUES[field]})
        assert self.database(path).lookup(other) is None
        assert self.database(path).lookup(KEY) is not None

    def test_the_last_record_of_a_key_counts(self, tmp_path: Path) -> None:
        database = self.database(tmp_path / "log.jsonl")
        for median_sec in (1.0, 2.0):
            database.append(record_of("x", median_sec))
        for reader in (database, self.database(tmp_path / "log.jsonl")):
            (found,) = reader.records()
            assert found.cost.median_sec == 2.0 and len(reader) == 1

    def test_without_a_path_records_stay_in_memory(self) -> None:
        database = self.database()
        database.append(record_of())
        database.refresh()
        assert database.lookup(KEY) is not None

    # What others do to the file.

    @pytest.mark.parametrize("cut", [1, 10, 200, -1])
    def test_a_torn_last_line_is_skipped_and_reported_and_the_next_record_is_kept(
        self, tmp_path: Path, cut: int
    ) -> None:
        path = tmp_path / "log.jsonl"
        torn = record_of("first").to_json() + "\n" + record_of("torn").to_json()[:cut]
        path.write_text(torn)
        database = self.database(path)
        assert workloads(database) == ["first"]
        assert [(p.line, "torn" in p.reason) for p in database.problems] == [(2, True)]
        assert path.read_text() == torn, "reading changes nothing"
        database.append(record_of("after"))
        again = self.database(path)
        assert workloads(again) == ["first", "after"]
        assert [problem.line for problem in again.problems] == [2]

    def test_lines_that_are_no_record_are_skipped_and_reported(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        # The last one is a pickle, which is text like any other.
        foreign = [b"hello", b"[1, 2]", b'{"some": "object"}', b"\xff\xfe\x00", b"cos\nsystem\n."]
        path.write_bytes(b"\n".join([*foreign, record_of("kept").to_json().encode(), b""]))
        database = self.database(path)
        assert workloads(database) == ["kept"]
        assert [problem.line for problem in database.problems] == [1, 2, 3, 4, 5, 6, 7]

    def test_logs_merge_by_concatenation_and_the_last_record_counts(self, tmp_path: Path) -> None:
        a, b, both = (tmp_path / name for name in ("a", "b", "both"))
        self.database(a).append(record_of("x", 1.0))
        self.database(a).append(record_of("y", 1.0))
        self.database(b).append(record_of("x", 2.0))
        both.write_bytes(a.read_bytes() + b.read_bytes())
        merged = {r.key.workload: r.cost.median_sec for r in self.database(both).records()}
        assert merged == {"x": 2.0, "y": 1.0}

    def test_records_of_other_writers_are_seen(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        one, other = self.database(path), self.database(path)
        one.append(record_of("one"))
        assert other.lookup(record_of("one").key) is None
        other.refresh()
        assert other.lookup(record_of("one").key) is not None
        other.append(record_of("other"))
        one.append(record_of("one more"))
        assert set(workloads(one)) == {"one", "other", "one more"}

    def test_processes_may_append_at_the_same_time(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        kind = [self.database.__module__, self.database.__qualname__]
        command = [sys.executable, "-c", _WRITER, *kind, str(path)]
        writers = [subprocess.Popen([*command, name, "200"]) for name in "abc"]
        assert [writer.wait() for writer in writers] == [0, 0, 0]
        database = self.database(path)
        assert not database.problems
        assert len(database) == 600

    # Where it may not write.

    def test_a_read_only_log_must_exist_and_is_never_written(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        with pytest.raises(LogError, match="cannot be read"):
            self.database(path, read_only=True)
        self.database(path).append(record_of())
        before = path.read_bytes()
        database = self.database(path, read_only=True)
        assert len(database) == 1
        with pytest.raises(LogError, match="read only"):
            database.append(record_of("more"))
        assert path.read_bytes() == before

    @pytest.mark.parametrize("place", ["no/such/folder/log.jsonl", "a folder", "a file/log.jsonl"])
    def test_a_log_that_cannot_be_written_is_named(self, tmp_path: Path, place: str) -> None:
        (tmp_path / "a folder").mkdir()
        (tmp_path / "a file").touch()
        path = tmp_path / place
        with pytest.raises(LogError, match=f"log '{path}' cannot be"):
            self.database(path).append(record_of())
