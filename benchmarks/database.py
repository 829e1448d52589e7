"""A log of a million records in a database: how long a search waits for what it asks.

``python -m benchmarks.database postgresql+psycopg://host/bench`` fills a new log, asks it, and
writes ``benchmarks/results/database.md``. Without a URL it takes an SQLite file in a folder of its
own; several URLs are put beside each other.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from collage.backends.storage.log_engine import LogEngine
from collage.backends.storage.log_table import Entry, LogTable
from collage.cost.base import Cost
from collage.cost.database.record import PARTITION, Record, RecordKey
from collage.cost.database.sql import SqlDatabase, _digest, _subject, entry_of

_KEYS = 400
"""About as many as a search of a large network asks for."""
_REPEATS = 7
_APPENDS = 100
_IMPORTED = 5_000


def record(number: int) -> Record:
    """A measurement as long as usual, with a key of its own."""
    draw = random.Random(number)
    key = RecordKey(
        kind=PARTITION,
        workload=f"{draw.getrandbits(256):064x}",
        tensors="1x64x56x56:float32, 64x64x3x3:float32, 64:float32 -> 1x64x56x56:float32",
        target='{"backend": "onednn", "device": {"keys": ["cpu"], "kind": "llvm"}, "options": {}}',
        versions=(("oneDNN", "3.2.1"), ("onednn codegen", "0123456789abcdef")),
        compiler="g++ (Debian 12.2.0-14) 12.2.0",
        tvm="0.27.0, ffi 0.1.14",
        device="Intel(R) Xeon(R) Processor, 32 cores, isa 0123456789abcdef",
        driver="none",
        num_threads=32,
        config='{"repeat": 30, "tolerance": 0.001, "warmup_sec": 0.02}',
        denormals="flushed",
    )
    cost = Cost.of_samples([draw.uniform(1e-3, 2e-3) for _ in range(20)])
    moment = "2026-01-01T00:00:00+00:00"
    return Record(key, cost, "conv2d, add, relu", "onednn", 1e-6, 0.1, 0.2, 0.3, moment)


_FIRST = record(0)


def _entries(count: int) -> Iterator[Entry]:
    """Each is the first one with another workload: a million are not to take hours to draw."""
    line, key = _FIRST.to_json(), _FIRST.key
    first = entry_of(line)
    for number in range(count):
        workload = _workload(number)
        digest = _digest(dataclasses.replace(key, workload=workload))
        text = line.replace(key.workload, workload)
        yield dataclasses.replace(first, key=digest, line=text, subject=_subject(workload))


def _workload(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def _key(number: int) -> RecordKey:
    return dataclasses.replace(_FIRST.key, workload=_workload(number))


def _median_sec(work: Callable[[int], object]) -> float:
    """Of several times, each of which asks for something else."""
    seconds = []
    for repeat in range(_REPEATS):
        begin = time.perf_counter()
        work(repeat)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def measure(database: SqlDatabase, count: int) -> dict[str, str]:
    """What filling and asking a log take, in words."""
    begin = time.perf_counter()
    LogTable(LogEngine(database.url)).insert_all(_entries(count))
    filled_sec = time.perf_counter() - begin
    draw = random.Random(count)
    lines = [record(_IMPORTED + number).to_json() for number in range(_IMPORTED)]
    begin = time.perf_counter()
    database.extend(lines)
    imported_sec = time.perf_counter() - begin

    def known(_: int) -> None:
        keys = [_key(draw.randrange(count)) for _ in range(_KEYS)]
        assert None not in database.lookup_all(keys)

    def unknown(repeat: int) -> None:
        keys = [_key(count + _KEYS * repeat + i) for i in range(_KEYS)]
        assert set(database.lookup_all(keys)) == {None}

    found_sec, missed_sec = _median_sec(known), _median_sec(unknown)
    single_sec = _median_sec(lambda _: database.lookup(_key(draw.randrange(count))))
    begin = time.perf_counter()
    for number in range(_APPENDS):
        database.append(record(-1 - number))
    appended_sec = (time.perf_counter() - begin) / _APPENDS
    opened_sec = _median_sec(lambda _: database.devices())
    return {
        f"{_KEYS} keys, all known": f"{found_sec * 1e3:.0f} ms",
        f"{_KEYS} keys, none known": f"{missed_sec * 1e3:.0f} ms",
        "one key": f"{single_sec * 1e3:.1f} ms",
        "one record appended, committed": f"{appended_sec * 1e3:.1f} ms",
        "records appended a second by one process": f"{1 / appended_sec:.0f}",
        "rows inserted a second, many at once": f"{count / filled_sec:.0f}",
        "lines imported a second, each read": f"{_IMPORTED / imported_sec:.0f}",
        "devices of all records": f"{opened_sec * 1e3:.0f} ms",
    }


def table(columns: dict[str, dict[str, str]], count: int) -> str:
    """The page of results."""
    names = list(next(iter(columns.values())))
    head = f"| {count} records | " + " | ".join(columns) + " |"
    rule = "| --- |" + " ---: |" * len(columns)
    rows = [
        f"| {name} | " + " | ".join(column[name] for column in columns.values()) + " |"
        for name in names
    ]
    cores = os.cpu_count()
    return "\n".join(
        [
            "# A team's log in a database",
            "",
            "`python -m benchmarks.database`: a log is filled and asked for what a search asks, "
            f"each median of {_REPEATS}. {platform.machine()}, {cores} cores, server and client on "
            f"one machine; load average {os.getloadavg()[0]:.0f} at the end.",
            "",
            head,
            rule,
            *rows,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", nargs="*", help="empty databases")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/database.md"))
    options = parser.parse_args()
    columns: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for url in options.urls or [f"sqlite:///{folder}/team.db"]:
            database = SqlDatabase(url)
            columns[url.partition(":")[0].partition("+")[0]] = measure(database, options.records)
    options.output.write_text(table(columns, options.records), encoding="utf-8")


if __name__ == "__main__":
    main()
