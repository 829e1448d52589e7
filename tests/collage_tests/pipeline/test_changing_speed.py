"""A machine whose speed changes while candidates are timed, simulated: answers stay good."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.changing_speed.simulated import Net, Simulated, true_seconds
from benchmarks.rival_contests import network
from collage.backends.contract import BackendTarget
from collage.candidate_costs import timed_together
from collage.cost.base import Cost
from collage.cost.contest import Exchange
from collage.cost.workload.workload import Workload
from collage.testing.fixtures.loaded_machine import LoadedMachine, Pace, Seconds

SEEDS = 4


@pytest.fixture(scope="module")
def net() -> Net:
    return network(layers=24)


def truth_of(seed: int) -> Seconds:
    """Long enough that times do not depend on caches."""
    drawn = true_seconds(seed)
    return lambda workload, target: 50 * drawn(workload, target)


def searched(net: Net, seed: int, pace: Pace) -> tuple[Simulated, float]:
    """A search, and its answer's regret."""
    truth = truth_of(seed)
    one = Simulated(net, LoadedMachine(truth, seed, 0.0, pace=pace, noise=0.03), truth)
    covers = one.search()
    took_sec = one.truly(covers.contenders[0].partitioning.candidates)
    return one, took_sec / one.least(covers) - 1.0


def steady(now: float) -> float:
    return 1.0


def slow_at_first(now: float) -> float:
    return 1.5 if now < 16.0 else 1.0


def test_what_was_timed_while_a_machine_was_slow_is_not_lost(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [searched(net, seed, slow_at_first) for seed in range(SEEDS)]
    assert all(len(one.costs.together.stretches) > 1 for one, _ in told)
    assert all("speed changed" in one.costs.together.remark for one, _ in told)
    monkeypatch.setattr(timed_together, "_ENOUGH", 10_000)  # No witnesses.
    without = [searched(net, seed, slow_at_first)[1] for seed in range(SEEDS)]
    assert np.mean(without) > 0.02  # Else nothing is shown.
    assert np.mean([regret for _, regret in told]) < 0.4 * np.mean(without)


def test_on_a_steady_machine_there_is_one_speed(net: Net) -> None:
    told = [searched(net, seed, steady) for seed in range(SEEDS)]
    assert all(len(one.costs.together.stretches) == 1 for one, _ in told)
    assert not any(one.costs.together.remark for one, _ in told)
    assert np.mean([regret for _, regret in told]) <= 0.02


class Logged(LoadedMachine):
    """Knows the first contest that it is asked for, as the log of an earlier release does."""

    def together(
        self,
        workloads: Sequence[Workload],
        targets: Sequence[BackendTarget],
        exchanges: Sequence[Exchange],
        patience_sec: float,
    ) -> list[Cost] | None:
        self.asked = [*getattr(self, "asked", ()), (len(workloads), patience_sec)]
        patience_sec = patience_sec if len(self.asked) > 1 else 1.0
        return super().together(workloads, targets, exchanges, patience_sec)


def test_a_contest_that_a_log_has_without_witnesses_is_taken_from_there(net: Net) -> None:
    truth = truth_of(0)
    machine = Logged(truth, 0, 0.0, pace=slow_at_first, noise=0.03)
    one = Simulated(net, machine, truth)
    one.search()
    assert machine.asked[0][1] == 0.0  # Nothing is timed for the question.
    # No witness took part in it, so it is read as it was by that release.
    assert len(one.costs.together.stretches) == 1
