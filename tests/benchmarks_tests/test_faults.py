"""A search goes on whatever of it is killed; ``benchmarks.fleet.faults`` kills more."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import psutil
import pytest

from benchmarks.fleet.faults import trial
from benchmarks.fleet.tally import Campaigns, Tally
from benchmarks.fleet.victims import FLEETS, Fleet, RpcPool
from collage.testing.fixtures.rpc_fleet import RpcFleet

_ALL_ARE_VALID = {"nothing fails"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FLEETS))
def test_nothing_is_lost_by_random_kills(name: str, tmp_path: Path) -> None:
    tally = Tally()
    with FLEETS[name]() as fleet:
        trial(fleet, 6, random.Random(7), tally, _ALL_ARE_VALID, tmp_path / "log.jsonl")
    assert not tally.lost, tally
    assert tally.kills and tally.reported


def test_a_search_that_was_killed_goes_on(tmp_path: Path) -> None:
    """Workers and the search itself, on this machine."""
    tally = Tally()
    trial(Fleet(), 2, random.Random(3), tally, _ALL_ARE_VALID, tmp_path / "log.jsonl")
    assert not tally.lost, tally
    assert tally.kills and tally.reported


def test_whatever_server_was_killed_the_others_may_be() -> None:
    """A dead one hid all others, and their sessions: the search alone was left to kill."""
    with RpcFleet(2) as fleet:
        pool, head = RpcPool(fleet), psutil.Process()
        for _ in range(3):
            victims = pool.victims(head)
            assert len(victims["servers"]) == 2
            victims["servers"][-1]()
        assert sum(server.poll() is None for server in fleet.servers) == 2


def test_what_earlier_campaigns_lost_stays_on_record(tmp_path: Path) -> None:
    (tmp_path / "faults.json").write_text('{"notes": ["It was mended."]}')
    before = Campaigns.read(tmp_path)
    keep = before.begin("local", before.next_seed("local"))
    keep(Tally(Counter(workers=3), 1, 1, 19))
    keep(Tally(Counter(workers=5), 2, 2, 38, Counter({"a record is there twice": 1}), 60.0))
    after = Campaigns.read(tmp_path)
    assert after.next_seed("local") == 1 and after.next_seed("ray") == 0
    after.begin("local", 1)(Tally(Counter(workers=1, actors=2), 1, 4, 19, Counter(), 40.0))
    after.begin("ray", 0)(Tally(Counter(nodes=10), 1, 1, 19, Counter(), 5.0))
    page = (tmp_path / "faults.md").read_text()
    assert (
        "| local | 8 | actors 2, workers 6 | 3 | 6 | 57 | a record is there twice (1) | 100 s |"
        in page
    )
    assert "| ray | 10 | nodes 10 | 1 | 1 | 19 | nothing | 5 s |" in page
    assert "| all | 18 | actors 2, nodes 10, workers 6 | 4 | 7 | 76 |" in page
    assert page.endswith("\n\nIt was mended.\n")
