"""What candidates cost that there was no time to measure: careful guesses from those measured.

A roofline says how long a workload might take on a nominal device. How many times as long others
really took is known of those that were measured, backend by backend and operator by operator; a
guess takes one of the worst of these ratios, so that what is guessed does not beat what was
measured by chance. Guesses are labelled as such wherever they are shown, and never in a log.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from collage.backends.contract import BackendTarget
from collage.backends.devices import device_of
from collage.cost.base import Cost
from collage.cost.models.roofline import CPU, NOMINAL, RooflineCostModel
from collage.cost.workload.describe import call_flops, operator_calls
from collage.cost.workload.workload import Workload

_QUANTILE = 0.9
"""Of the ratios seen: a guess that is too high costs a good candidate its chance, one that is too
low gives a bad one the place of what was measured."""

_ENOUGH = 3
"""Ratios of one kind that do for a guess."""

_MARGINS = (1.2, 1.4, 1.6, 1.6)
"""By how well what was seen fits: the same operator on the same backend, any on that backend, the
operator on any backend, anything at all."""

_BLIND = 2.0
"""The margin when nothing at all was seen."""

_Level = tuple[str, str]


class Estimates:
    """Guesses the cost of workloads, the better the more costs it was told of.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> small, large = [
    ...     Workload.from_module(graph([(1, n)], lambda emit, x: op.exp(x))) for n in (1000, 9000)
    ... ]
    >>> estimates = Estimates()
    >>> blind = estimates.seconds(large, tvm)
    >>> for _ in range(3):
    ...     estimates.note(small, tvm, Cost.of_samples([1e-3]))
    >>> blind < 1e-3 < estimates.seconds(large, tvm)
    True
    """

    def __init__(self) -> None:
        self._models = {kind: RooflineCostModel(spec) for kind, spec in NOMINAL.items()}
        self._ratios: dict[_Level, list[float]] = defaultdict(list)
        self._kinds: dict[str, str] = {}
        self._rooflines: dict[tuple[str, BackendTarget], float] = {}

    def note(self, workload: Workload, target: BackendTarget, cost: Cost) -> None:
        """Learn from a measurement.

        Parameters
        ----------
        workload : Workload
            What was measured.
        target : BackendTarget
            On what.
        cost : Cost
            What came out; only a valid one teaches anything.
        """
        if not cost.is_valid:
            return
        ratio = cost.median_sec / self._roofline(workload, target)
        for level in self._levels(workload, target):
            self._ratios[level].append(ratio)

    def seconds(self, workload: Workload, target: BackendTarget) -> float:
        """A guess that is rather too high than too low.

        Parameters
        ----------
        workload : Workload
            What was not measured.
        target : BackendTarget
            What it would run on.

        Returns
        -------
        float
            Per call.
        """
        roofline_sec = self._roofline(workload, target)
        for level, margin in zip(self._levels(workload, target), _MARGINS, strict=True):
            ratios = self._ratios.get(level, [])
            if len(ratios) >= _ENOUGH:
                return roofline_sec * float(np.quantile(ratios, _QUANTILE)) * margin
        return roofline_sec * _BLIND

    def _roofline(self, workload: Workload, target: BackendTarget) -> float:
        place = (workload.key, target)
        if place not in self._rooflines:
            (cost,) = self._models[device_of(target.device).name].estimate([workload], [target])
            self._rooflines[place] = cost.median_sec
        return self._rooflines[place]

    def _levels(self, workload: Workload, target: BackendTarget) -> tuple[_Level, ...]:
        if workload.key not in self._kinds:
            self._kinds[workload.key] = _kind(workload)
        kind = self._kinds[workload.key]
        return (target.name, kind), (target.name, ""), ("", kind), ("", "")


def importance(workload: Workload) -> float:
    """About how much of a model's time a workload may take, on whatever it runs.

    Parameters
    ----------
    workload : Workload
        One that occurs once.
    """
    return workload.flops / CPU.float_flops_per_sec + workload.bytes / CPU.bytes_per_sec


def _kind(workload: Workload) -> str:
    """The operator that computes most."""
    calls = list(operator_calls(workload.module))
    return str(max(calls, key=call_flops).op.name) if calls else ""
