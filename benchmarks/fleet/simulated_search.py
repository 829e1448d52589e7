"""One search on simulated workers, in a process of its own; what it took, as a line of JSON.

The question is real: the candidates of a network for a GPU, asked by the search itself and recorded
in a log. What is simulated are the workers' answers: estimates from the device's data sheet, spread
out so that no backend always wins, after delays like those of measuring on a device.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.networks.models import light_model
from collage.backends.contract import BackendTarget, BuildContext
from collage.candidate_costs import WorkloadCosts
from collage.cost import MeasuredCostModel
from collage.cost.base import Answer, Asked, Asking, Cost, CostModel, Overheads
from collage.cost.database import JsonLinesDatabase
from collage.cost.device import Device
from collage.cost.models.roofline import RooflineCostModel
from collage.cost.workload.workload import Workload
from collage.pipeline.covers import find_covers
from collage.pipeline.imported import import_model
from collage.targets import resolve_targets
from collage.testing.fixtures.simulated import Delays, SimulatedEngine

GPU = {
    "kind": "cuda",
    "arch": "sm_90a",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
}
DEVICE = Device("cuda", "a simulated one", 132, "sm_90", "none", 143_771)
BUILDERS = 2
"""For each device."""

_BUILD_SEC = {"cutlass": 3.0}
_OTHER_BUILD_SEC = 1.0
_RUN_SEC = 1.5
_SPREAD = 0.6
"""Delays are this much longer or shorter than these."""

_THREADS = 128


@dataclass(frozen=True)
class Taken:
    """What a search took.

    Attributes
    ----------
    network : str
    workers : int
    network_between : bool
        Whether devices were waited for on the far side of a network.
    asking_sec : float
        From the first question to the last answer, the search's rounds between them included.
    busy_sec : float
        That devices were busy, all of them together.
    building_sec : float
        The same of builders.
    rounds : int
        In which the search asked.
    measured : int
        Workloads.
    longest_sec : float
        Of one workload, built and timed: what nobody can be faster than.
    answer_sec : float
        What the search found.
    """

    network: str
    workers: int
    network_between: bool
    asking_sec: float
    busy_sec: float
    building_sec: float
    rounds: int
    measured: int
    longest_sec: float
    answer_sec: float

    @property
    def utilization(self) -> float:
        """The share of all devices' time in which they were busy."""
        return self.busy_sec / (self.workers * self.asking_sec)


class Spread(CostModel):
    """Estimates that are off by a factor of their own, always the same."""

    def __init__(self) -> None:
        self._estimates = RooflineCostModel()

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        costs = self._estimates.estimate(workloads, targets)
        return [
            Cost.of_samples([cost.median_sec * math.exp(1.6 * (_draw("cost", w, t) - 0.5))])
            for cost, w, t in zip(costs, workloads, targets, strict=True)
        ]


_REFERENCE = Delays(build_sec=1.0, run_sec=0.05)
"""Of the small workloads by which places are compared."""


def delays(workload: Workload, target: BackendTarget) -> Delays:
    """How long workers are busy with a workload of the search."""
    build_sec = _BUILD_SEC.get(target.backend, _OTHER_BUILD_SEC)
    return Delays(
        build_sec * _around(_draw("build", workload, target)),
        _RUN_SEC * _around(_draw("run", workload, target)),
    )


def _draw(what: str, workload: Workload, target: BackendTarget) -> float:
    text = f"{what} {workload.key} {target.backend}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


def _around(drawn: float) -> float:
    return 1.0 + _SPREAD * (2.0 * drawn - 1.0)


class Noting(CostModel):
    """Another cost model; notes what it was asked, and when."""

    model: CostModel

    def __init__(self) -> None:
        self.delays: dict[tuple[Workload, BackendTarget], Delays] = {}
        self.begin = self.end = 0.0
        self.rounds = 0

    def delays_of(self, workload: Workload, target: BackendTarget) -> Delays:
        """How long workers are busy; the search asks for nothing that devices are compared by."""
        return self.delays.get((workload, target), _REFERENCE)

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        self.rounds += 1
        self._note(list(zip(workloads, targets, strict=True)))
        costs = self.model.estimate(workloads, targets)
        self.end = time.perf_counter()
        return costs

    def _note(self, questions: Sequence[tuple[Workload, BackendTarget]]) -> None:
        self.begin = self.begin or time.perf_counter()
        for workload, target in questions:
            self.delays[workload, target] = delays(workload, target)

    def overheads(self, target: BackendTarget) -> Overheads:
        return self.model.overheads(target)

    def at_once(self, target: BackendTarget) -> int:
        return self.model.at_once(target)

    def stream(self, targets: Sequence[BackendTarget], ask: Asking) -> None:
        def noted(answers: Sequence[Answer], room: int) -> Asked | None:
            asked = ask(answers, room)
            if asked is not None:
                self._note([*asked.urgent, *asked.others])
            return asked

        self.model.stream(targets, noted)
        self.end = time.perf_counter()


@contextmanager
def far_side(wanted: bool) -> Iterator[Executor | None]:
    """A cluster of Dask's on loopback, whose processes wait in place of devices."""
    if not wanted:
        yield None
        return
    from distributed import Client, LocalCluster

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2,
            threads_per_worker=_THREADS // 2,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=folder,
        ) as cluster,
        Client(cluster) as client,
        client.get_executor() as executor,
    ):
        list(executor.map(time.sleep, [0.1] * 4))
        yield executor


def search(network: str, workers: int, network_between: bool) -> Taken:
    """Search a network with so many simulated workers.

    Parameters
    ----------
    network : str
        A light model.
    workers : int
        Devices, each with two builders.
    network_between : bool
        Whether devices are waited for on the far side of a network.
    """
    targets = resolve_targets([GPU, "cutlass", "cublas", "cudnn"])
    imported = import_model(light_model(network), targets.device)
    asked = Noting()
    with (
        tempfile.TemporaryDirectory() as name,
        far_side(network_between) as executor,
        MeasuredCostModel(
            BuildContext(Path(name) / "cache", Path(name) / "work"),
            JsonLinesDatabase(Path(name) / "log.jsonl"),
            engine=SimulatedEngine(
                Spread(), asked.delays_of, DEVICE, workers, BUILDERS * workers, executor
            ),
            device=DEVICE,
        ) as model,
    ):
        asked.model = model
        costs = WorkloadCosts(imported.mod, imported.graph, asked)
        covers = find_covers(imported.graph, targets, "search", costs)
        result = covers.result
        assert result is not None and result.partitioning is not None and result.complete
        answer_sec = result.partitioning.seconds
        assert answer_sec is not None
        # What was under way in the end is given up.
        every = [delay for asked_for, delay in asked.delays.items() if model.recorded(*asked_for)]
    return Taken(
        network,
        workers,
        network_between,
        asked.end - asked.begin,
        sum(each.run_sec for each in every),
        sum(each.build_sec for each in every),
        asked.rounds,
        len(every),
        max(each.build_sec + each.run_sec for each in every),
        answer_sec,
    )


def main(arguments: Sequence[str]) -> None:
    """``NETWORK WORKERS near|far``."""
    network, workers, between = arguments
    taken: dict[str, Any] = asdict(search(network, int(workers), between == "far"))
    print(json.dumps(taken))


if __name__ == "__main__":
    main(sys.argv[1:])
