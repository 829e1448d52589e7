"""The suite that any log of measurements must pass."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from collage.backends.contract.errors import LogError
from collage.backends.storage import BlobReference, TuningRecord
from collage.backends.storage.tuning_record import blob_line
from collage.cost.base import Cost, CostStatus
from collage.cost.database import Database
from collage.cost.database.record import PARTITION, SCHEMA_VERSION, Record, RecordKey
from collage.testing.fixtures.log_writers import start_writers

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


def record_of(workload: str = KEY.workload, median_sec: float = 1e-3) -> Record:
    """A valid measurement of a workload, all else as in :data:`KEY`.

    Parameters
    ----------
    workload : str
        Its key.
    median_sec : float
        What it took.

    Returns
    -------
    Record
        Of three samples around that time.
    """
    key = dataclasses.replace(KEY, workload=workload)
    cost = Cost.of_samples([0.9 * median_sec, median_sec, 1.1 * median_sec])
    return Record(key, cost, "conv", "onednn", 1e-6, 0.1, 0.2, 0.3, "2026-01-01T00:00:00+00:00")


def workloads(database: Database, some: Collection[str] | None = None) -> list[str]:
    """The workloads that a log knows, in order of first appearance.

    Parameters
    ----------
    database : Database
        The log.
    some : collection of str, optional
        Only these.

    Returns
    -------
    list of str
        Keys.
    """
    return [record.key.workload for record in database.records(some)]


class DatabaseContract:
    """What a search relies on: exact keys, and a log that loses nothing and doubles nothing.

    Derive a test class, name what opens the log under test, and say where a new one may be. It is
    called with the place and, for a replay, ``read_only=True``; it must be importable, for other
    processes write with it.

    Examples
    --------
    >>> from collage.cost.database import JsonLinesDatabase
    >>> class TestJsonLines(DatabaseContract):
    ...     database = JsonLinesDatabase
    >>> TestJsonLines().test_what_is_appended_is_found_again(Path())
    """

    database: ClassVar[Callable[..., Database]]

    def place(self, folder: Path) -> Path | str:
        """Where a new log may be, always the same of a folder; by default a file in it.

        Parameters
        ----------
        folder : Path
            Empty, and of this test alone.
        """
        return folder / "log.jsonl"

    def opened(self, folder: Path, **how: Any) -> Database:
        """The log of a folder, opened once more.

        Parameters
        ----------
        folder : Path
            As :meth:`place` takes it.
        **how
            For a replay ``read_only=True``.

        Returns
        -------
        Database
            To be closed by whoever asked.
        """
        return type(self).database(self.place(folder), **how)

    # What is found.

    def test_what_is_appended_is_found_again(self, tmp_path: Path) -> None:
        key = dataclasses.replace(KEY, workload="bad")
        crashed = Cost(CostStatus.CRASHED, reason="died of SIGSEGV")
        bad = Record(key, crashed, largest_error=math.inf)
        database = self.opened(tmp_path)
        database.append(record_of())
        database.append(bad)
        again = self.opened(tmp_path)
        assert list(again.records()) == [record_of(), bad]
        found, failed = again.lookup(KEY), again.lookup(key)
        assert found is not None and found.cost == record_of().cost
        assert failed is not None and failed.cost == crashed
        assert math.isinf(failed.cost.median_sec)
        assert not again.problems

    def test_every_field_of_the_key_is_tried(self) -> None:
        assert set(OTHER_VALUES) == {field.name for field in dataclasses.fields(RecordKey)}

    @pytest.mark.parametrize("field", OTHER_VALUES)
    def test_any_difference_in_the_key_is_a_miss(self, tmp_path: Path, field: str) -> None:
        self.opened(tmp_path).append(record_of())
        other = dataclasses.replace(KEY, **{field: OTHER_VALUES[field]})
        assert self.opened(tmp_path).lookup(other) is None
        assert self.opened(tmp_path).lookup(KEY) is not None

    def test_many_keys_are_looked_up_together_in_their_order(self, tmp_path: Path) -> None:
        database = self.opened(tmp_path)
        records = [record_of(f"w{i}", 1e-3 * (i + 1)) for i in range(40)]
        for record in records:
            database.append(record)
        missing = [record_of(f"none {i}").key for i in range(1500)]
        asked = [*missing, *(record.key for record in reversed(records)), records[0].key]
        found = database.lookup_all(asked)
        assert found == [None] * 1500 + [*reversed(records), records[0]]
        assert database.lookup_all([]) == []

    def test_the_last_record_of_a_key_counts(self, tmp_path: Path) -> None:
        database = self.opened(tmp_path)
        for workload, median_sec in (("x", 1.0), ("y", 1.0), ("x", 2.0), ("x", 1.0), ("x", 3.0)):
            database.append(record_of(workload, median_sec))
        for reader in (database, self.opened(tmp_path)):
            costs = [(r.key.workload, r.cost.median_sec) for r in reader.records()]
            assert costs == [("x", 3.0), ("y", 1.0)] and len(reader) == 2
        database.append(record_of("x", 1.0))
        found = database.lookup(record_of("x").key)
        assert found is not None and found.cost.median_sec == 1.0, "the same line once more"

    def test_records_of_some_workloads_and_the_devices_of_all(self, tmp_path: Path) -> None:
        database = self.opened(tmp_path)
        elsewhere = dataclasses.replace(record_of("b").key, device="another CPU", driver="7")
        database.append(record_of("a"))
        database.append(record_of("b"))
        database.append(dataclasses.replace(record_of("b"), key=elsewhere))
        database.append(record_of("c"))
        assert [r.key for r in database.records(["b"])] == [record_of("b").key, elsewhere]
        assert workloads(database, ["c", "a", "no such"]) == ["a", "c"]
        assert workloads(database, []) == []
        assert set(database.devices()) == {(KEY.device, KEY.driver), ("another CPU", "7")}
        assert len(database.devices()) == 2

    def test_what_backends_found_stands_between_the_records(self, tmp_path: Path) -> None:
        findings = [TuningRecord("toy", 1, {"n": n}, {"name": "gpu"}, {"best": n}) for n in (1, 2)]
        later = TuningRecord("toy", 1, {"n": 1}, {"name": "gpu"}, {"best": 7})
        lines = [*(f.to_json() for f in (*findings, later)), blob_line(b"a plan")]
        database = self.opened(tmp_path)
        assert database.extend(lines) == 4
        database.append(record_of())
        for reader in (database, self.opened(tmp_path)):
            assert list(reader.findings()) == [later, findings[1]]
            assert list(reader.blobs()) == [BlobReference.of(b"a plan")]
            assert list(reader.lines()) == [*lines, record_of().to_json()]
            assert list(reader.records()) == [record_of()] and not reader.problems

    def test_lines_of_another_log_are_added_once(self, tmp_path: Path) -> None:
        lines = [record_of("x", sec).to_json() for sec in (1.0, 2.0, 1.0)]
        assert lines[0] == lines[2]
        database = self.opened(tmp_path)
        assert database.extend(lines) == 3
        assert list(database.lines()) == lines, "nothing is lost, what stands there twice neither"
        more = record_of("y").to_json()
        assert database.extend([*lines, more]) == 1
        assert list(self.opened(tmp_path).lines()) == [*lines, more]
        found = database.lookup(record_of("x").key)
        assert found is not None and found.cost.median_sec == 1.0

    def test_any_text_survives(self, tmp_path: Path) -> None:
        odd = "quotes \" ' \\ percent %s :name {} \x00 \ud800 \u2028 ünïcödé 🙂 "
        record = dataclasses.replace(record_of(odd), description=odd)
        raw = json.dumps(json.loads(record_of("raw ünïcödé 🙂").to_json()), ensure_ascii=False)
        database = self.opened(tmp_path)
        database.append(record)
        database.extend([raw + " "])
        again = self.opened(tmp_path)
        assert again.lookup(record.key) == record
        assert list(again.lines()) == [record.to_json(), raw + " "]

    # Others.

    def test_records_of_other_writers_are_seen(self, tmp_path: Path) -> None:
        one, other = self.opened(tmp_path), self.opened(tmp_path)
        one.append(record_of("one"))
        other.refresh()
        assert other.lookup(record_of("one").key) is not None
        other.append(record_of("other"))
        one.append(record_of("one more"))
        assert set(workloads(one)) == {"one", "other", "one more"}

    def test_threads_may_share_one(self, tmp_path: Path) -> None:
        database = self.opened(tmp_path)

        def write(name: str) -> None:
            for index in range(20):
                database.append(record_of(f"{name}-{index}"))
                assert database.lookup(record_of(f"{name}-{index}").key) is not None

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, "abcd"))
        assert len(database) == len(self.opened(tmp_path)) == 80

    def test_processes_may_append_at_the_same_time_and_be_killed(self, tmp_path: Path) -> None:
        names, told = [f"writer{i}" for i in range(8)], set[str]()
        with self.writers(tmp_path, names, 100_000) as writers:
            assert writers.stdout is not None
            pids: dict[str, int] = {}
            killed: set[str] = set()
            while len(told) < 160:
                pid, workload = writers.stdout.readline().split()
                told.add(workload)
                pids[workload.partition("-")[0]] = int(pid)
                # One after the other but for two, in whatever it is at; in the end those too.
                victim = next((name for name in pids if name not in killed), None)
                if len(told) % 16 == 0 and victim and len(killed) < len(names) - 2:
                    killed.add(victim)
                    os.kill(pids[victim], signal.SIGKILL)
            os.killpg(writers.pid, signal.SIGKILL)
            told |= {line.split()[1] for line in writers.stdout}
        database = self.opened(tmp_path)
        found = [Record.from_json(line).key.workload for line in database.lines()]
        assert len(found) == len(set(found)) == len(database), "nothing is doubled"
        assert told <= set(found), "nothing is lost"
        # What was under way when its writer died may be there, though it was never told.
        assert len(set(found) - told) <= len(names)
        database.append(record_of("after"))
        assert workloads(self.opened(tmp_path), ["after"]) == ["after"]

    def writers(self, folder: Path, names: Sequence[str], count: int) -> subprocess.Popen[str]:
        """Processes that append records, and print their id and the workload of each that was.

        Parameters
        ----------
        folder : Path
            As :meth:`place` takes it.
        names : sequence of str
            One for each; its workloads are ``name-0``, ``name-1`` and so on.
        count : int
            How many workloads.

        Returns
        -------
        subprocess.Popen
            One process that has started them all; its output is text.
        """
        return start_writers(self.place(folder), type(self).database, names, count)

    # Where it may not write.

    def test_a_read_only_log_must_exist_and_is_never_written(self, tmp_path: Path) -> None:
        with pytest.raises(LogError, match="cannot be read"):
            self.opened(tmp_path, read_only=True)
        self.opened(tmp_path).append(record_of())
        database = self.opened(tmp_path, read_only=True)
        assert len(database) == 1
        with pytest.raises(LogError, match="read only"):
            database.append(record_of("more"))
        with pytest.raises(LogError, match="read only"):
            database.extend([record_of("more").to_json()])
        assert workloads(self.opened(tmp_path)) == [KEY.workload]
