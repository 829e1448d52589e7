"""Servers that go away: what was committed is there, once; the rest is told in one line."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from collage.backends.contract.errors import LogError
from collage.backends.storage import log_table
from collage.backends.storage.log_engine import LogEngine
from collage.backends.storage.log_table import LogTable
from collage.cost.database.sql import SqlDatabase, entry_of
from collage.testing.database_contract import KEY, record_of
from tests import postgres


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """Not that of the other tests, which are not to see it go."""
    if reason := postgres.missing():
        pytest.skip(reason)
    with postgres.running() as started:
        yield started


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_is_restarted_is_waited_for(
    server: postgres.Server, how: signal.Signals
) -> None:
    url = server.url(f"restarted{how}")
    database = SqlDatabase(url)
    written: list[str] = []
    stopped = threading.Event()
    failed: list[BaseException] = []

    def write(name: str) -> None:
        try:
            while not stopped.is_set():
                written.append(f"{name}-{len(written)}-{time.monotonic_ns()}")
                database.append(record_of(written[-1]))
        except LogError as err:
            failed.append(err)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for _ in range(2):
        before = len(written)
        server.stop(how)
        time.sleep(0.3)
        server.start()
        end = time.monotonic() + 60
        while len(written) < before + 20 and time.monotonic() < end:
            time.sleep(0.02)
    stopped.set()
    for thread in threads:
        thread.join()
    assert failed == []
    found = [record.key.workload for record in database.records()]
    assert sorted(found) == sorted(written), "each that was committed is there, and once"
    assert len(list(database.lines())) == len(written)


def test_a_server_that_stays_away_is_one_clear_error(server: postgres.Server) -> None:
    url = server.url("away")
    database = SqlDatabase(url, patience_sec=1.0)
    database.append(record_of())
    server.stop()
    try:
        begin = time.monotonic()
        for use in (lambda: database.append(record_of("x")), lambda: database.lookup(KEY)):
            with pytest.raises(
                LogError, match=r"cannot be (read|written): .* \(\d+ tries\)"
            ) as err:
                use()
            assert "\n" not in str(err.value) and err.value.__cause__ is None
        assert time.monotonic() - begin < 30
        with pytest.raises(LogError, match=r"cannot be read: .*; see that the server runs"):
            SqlDatabase(url)
    finally:
        server.start()
    assert database.lookup(KEY) == record_of()


def test_a_commit_whose_answer_was_lost_is_not_made_twice(server: postgres.Server) -> None:
    database = SqlDatabase(server.url("lost"))
    engine = database._table.engine

    class Lossy(LogEngine):
        """Everything is done, and the first time nobody hears of it."""

        def write(self, work, times=2):  # type: ignore[no-untyped-def]
            done = [engine.write(work) for _ in range(times)]
            return done[-1][0], times

    table = LogTable(Lossy(database.url))
    table.insert(entry_of(record_of().to_json()))
    assert len(list(database.lines())) == 1
    for sec in (1.0, 2.0):
        database.append(record_of("x", sec))
    table.insert(entry_of(record_of("y").to_json()))
    assert len(list(database.lines())) == 4


def test_an_import_that_is_cut_off_goes_on(
    server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_table, "_BATCH", 1000)
    database = SqlDatabase(server.url("import"), patience_sec=0.5)
    lines = [record_of(f"w{i % 1500}").to_json() for i in range(3000)]

    def until_the_server_dies() -> Iterator[str]:
        for number, line in enumerate(lines):
            if number == 2200:
                server.stop(signal.SIGQUIT)
            yield line

    with pytest.raises(LogError, match="cannot be written"):
        database.extend(until_the_server_dies())
    server.start()
    assert 0 < len(list(database.lines())) < 3000
    database.extend(lines)
    assert list(database.lines()) == lines
    assert database.extend(lines) == 0
