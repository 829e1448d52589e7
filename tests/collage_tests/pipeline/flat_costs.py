"""Costs that nobody measured: the same for everything, less on one backend."""

from __future__ import annotations

from collections.abc import Sequence

from collage.backends.contract import BackendTarget
from collage.cost import Cost, CostStatus
from collage.cost.base import CostModel
from collage.cost.workload.workload import Workload


class FlatCosts(CostModel):
    """A millisecond for every candidate, or half of that on the backend that is to win.

    Parameters
    ----------
    winner : str
        Its name; ``llvm`` for TVM.
    """

    def __init__(self, winner: str) -> None:
        self._winner = "tvm" if winner == "llvm" else winner

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        return [self._of(target) for target in targets]

    def _of(self, target: BackendTarget) -> Cost:
        seconds = 0.5e-3 if target.backend == self._winner else 1e-3
        return Cost(CostStatus.VALID, seconds, samples_sec=(seconds,))
