"""A refinement, as one of several processes: prints what it measured."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.strategies.evolutionary import RefineProgress, _signature, refine
from collage.testing.search_contract import TARGETS


def problem() -> tuple[DataflowGraph, Partitioning, Sequence[Candidate]]:
    """A chain that can be cut and given away in hundreds of ways."""
    length = 9
    graph = DataflowGraph.from_uses([[i - 1] if i else [] for i in range(length)])
    alone = [Candidate(1 << i, target) for target in TARGETS[:2] for i in range(length)]
    joined = [Candidate(0b11 << i, TARGETS[i % 2]) for i in range(length - 1)]
    joined += [Candidate(0b111 << i, TARGETS[i % 2]) for i in range(length - 2)]
    return graph, Partitioning(tuple(alone[:length])), [*alone, *joined]


class Clock:
    """Whole programs take a while, and the longer the more parts they have."""

    def __init__(self, delay_sec: float = 0.0) -> None:
        self._delay_sec = delay_sec
        self.texts: list[str] = []

    def __call__(self, partitioning: Partitioning) -> float:
        self.texts.append(_signature(partitioning))
        time.sleep(self._delay_sec)
        return 1.0 + len(partitioning.candidates)


if __name__ == "__main__":
    storage, trials = sys.argv[1:]
    graph, start, candidates = problem()
    clock = Clock(0.02)
    seen: list[RefineProgress] = []
    refine(graph, start, candidates, clock, int(trials), storage, "shared", progress=seen.append)
    print(json.dumps({"measured": clock.texts, "trials": len(seen)}))
