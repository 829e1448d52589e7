"""A search goes on whatever of it is killed; ``benchmarks.fleet.faults`` kills more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.fleet.faults import Tally, trial
from benchmarks.fleet.victims import FLEETS, Fleet

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
