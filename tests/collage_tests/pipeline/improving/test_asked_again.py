"""What a search asks that goes on with costs from inside of whole models."""

from __future__ import annotations

import pytest

from benchmarks.changing_speed.simulated import Net, Simulated, inside_of, true_seconds
from benchmarks.rival_contests import network
from collage.pipeline.costing.inside_costs import InsideCosts
from collage.testing.fixtures.loaded_machine import LoadedMachine

LAYERS = 14


@pytest.fixture(scope="module")
def net() -> Net:
    return network(layers=LAYERS)


def simulated(net: Net, seed: int) -> Simulated:
    truth = true_seconds(seed)
    return Simulated(net, LoadedMachine(truth, seed, 0.0, noise=0.03), truth)


def test_wholes_that_take_longer_than_their_sums_make_it_ask_for_little(net: Net) -> None:
    """What was not measured counted as alone and what was as inside, so the former looked better:
    a third more was asked."""
    asked, more = [], []
    for seed in range(4):
        one = simulated(net, seed)
        covers = one.search()
        asked.append(one.machine.num_timed)
        one.correct(covers, inside_of(seed, 1.3))
        more.append(one.machine.num_timed - asked[-1])
    assert sum(more) <= 0.1 * sum(asked)


def test_what_is_likely_alone_is_shifted_as_what_is_known_alone(net: Net) -> None:
    one = simulated(net, 0)
    covers = one.search()
    inside = InsideCosts(one.costs)
    parts = [c for seed in covers.contenders for c in seed.partitioning.candidates if not c.inline]
    inside.note({part: 1.5 * sec for part in parts if (sec := one.costs.known(part))})
    unknown = [c for c in covers.found.candidates if inside.known(c) is None]
    others = [c for c in unknown if one.costs.likely_bound(c) > 0.0]
    assert len(others) > 20
    shifted = [inside.likely_bound(c) / one.costs.likely_bound(c) for c in others]
    assert shifted == pytest.approx([1.5] * len(others))
    # What surely holds stays as it is.
    assert all(inside.lower_bound(c) == one.costs.lower_bound(c) for c in others)
