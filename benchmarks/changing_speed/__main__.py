"""What a search asks, and how good its answer is, on a machine whose speed changes; simulated.

``python -m benchmarks.changing_speed --label after`` writes a column of
``benchmarks/results/changing_speed.md``, from rows in ``changing_speed.json``. The candidates are
those of a real network, each with a drawn true cost; nothing is compiled or timed, and the clock
is a number. So nothing of it depends on the machine that it runs on.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.changing_speed.page import Row, page
from benchmarks.changing_speed.simulated import (
    Net,
    Simulated,
    every_workload,
    inside_of,
    network,
    true_seconds,
)
from benchmarks.timing.machine import commit, now
from collage.testing.fixtures.loaded_machine import LoadedMachine, Pace

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Scenario:
    """A machine.

    Attributes
    ----------
    name : str
    pace : callable
        Of its clock.
    noise : float
        Of each sample.
    share, burst_sec : float
        Of bursts of load, in which everything takes 1 to 3 times as long.
    """

    name: str
    pace: Pace = lambda now: 1.0
    noise: float = 0.03
    share: float = 0.0
    burst_sec: float = 0.5


def _ramp(begin: float, end: float, seconds: float) -> Pace:
    return lambda now: begin + (end - begin) * min(1.0, now / seconds)


SCENARIOS = (
    Scenario("quiet", noise=0.005),
    Scenario("samples off by 3 %"),
    Scenario("by 10 %", noise=0.1),
    Scenario("by 20 %", noise=0.2),
    Scenario("1.4 times as slow from 25 s on", lambda now: 1.4 if now > 25.0 else 1.0),
    Scenario("1.4 times as slow until 25 s", lambda now: 1.0 if now > 25.0 else 1.4),
    Scenario("ever slower, 1.4 times in 80 s", _ramp(1.0, 1.4, 80.0)),
    Scenario("ever faster, 1.4 times in 80 s", _ramp(1.4, 1.0, 80.0)),
    Scenario("bursts, a tenth of the time", share=0.1),
    Scenario("bursts, three tenths", share=0.3),
)


def measured(net: Net, scenario: Scenario, seeds: int) -> Row:
    """What searches asked, and their answers' regret in percent, by seed.

    Parameters
    ----------
    net : Net
        What is searched.
    scenario : Scenario
        Where.
    seeds : int
        How many searches.
    """
    asked, regret, rounds = [], [], []
    every = every_workload(net)
    for seed in range(seeds):
        truth = true_seconds(seed)
        load = (seed, scenario.share, scenario.burst_sec)
        machine = LoadedMachine(truth, *load, pace=scenario.pace, noise=scenario.noise)
        one = Simulated(net, machine, truth, every)
        covers = one.search()
        assert covers.result is not None
        asked.append(machine.num_timed)
        rounds.append(covers.result.rounds)
        took = one.truly(covers.contenders[0].partitioning.candidates)
        regret.append(100.0 * (took / one.least(covers) - 1.0))
    return {"machine": scenario.name, "asked": asked, "regret": regret, "rounds": rounds}


def again(net: Net, ratio: float, seeds: int) -> Row:
    """What searching again asked besides, where wholes take so many times their sums.

    Parameters
    ----------
    net : Net
        What is searched.
    ratio : float
        Of what parts take inside and alone.
    seeds : int
        How many searches.
    """
    asked, more, whole = [], [], []
    every = every_workload(net)
    for seed in range(seeds):
        truth = true_seconds(seed)
        machine = LoadedMachine(truth, seed, 0.0, noise=0.03)
        one = Simulated(net, machine, truth, every)
        covers = one.search()
        asked.append(machine.num_timed)
        whole.append(1e3 * one.correct(covers, inside_of(seed, ratio)))
        more.append(machine.num_timed - asked[-1])
    return {"ratio": ratio, "asked": asked, "more": more, "whole_ms": whole}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--label", choices=("before", "after"), default="after")
    args = parser.parse_args()
    place = RESULTS / "changing_speed.json"
    rows: Row = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    net = network()
    one: Row = {"commit": commit(), "when": now(), "seeds": args.seeds}
    one["again"] = [_said(again(net, ratio, args.seeds)) for ratio in (1.0, 1.1, 1.2, 1.3)]
    one["machines"] = [_said(measured(net, scenario, args.seeds)) for scenario in SCENARIOS]
    rows[args.label] = one
    place.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "changing_speed.md").write_text(page(rows), encoding="utf-8")


def _said(row: Row) -> Row:
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main()
