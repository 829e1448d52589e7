"""What candidates of many operators take, by what these took in other candidates.

Candidates of a graph overlap: what runs regions of a network may run each run of its layers, which
are a square of their number. What such a region takes is about the sum of what its heavy operators
take, of what crosses its border and of the call; what each of them takes on a target is estimated
from all regions that were measured there, in a linear model of relative errors with a prior
(Bishop, Pattern Recognition and Machine Learning, 2006, section 3.3). So a region need not be
measured to know about what it takes, and how well that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from collage.backends.contract import BackendTarget
from collage.backends.devices import device_of
from collage.candidate_costs.work import GraphWork
from collage.cost.models.roofline import NOMINAL, DeviceSpec
from collage.search.dataflow import DataflowGraph, bits
from collage.search.op_kinds import OpKind

_FOLLOWS = (OpKind.ELEMWISE, OpKind.BROADCAST, OpKind.INJECTIVE)
"""What most backends compute on the way in or out of something heavier, and whose time is that of
the bytes that cross a border."""

_ENOUGH = 8
"""Measured candidates of a target that tell what it takes for others."""

_MOST_TERMS = 400
"""Of a model: solving for them takes milliseconds."""

_PRIOR = 1.0
"""How far off, relatively, a roofline is for one operator that was not measured on a target."""

_PRIOR_OF_BORDERS = 0.5
"""The same for the call and for what crosses a border, of which there are many."""

_ERROR = 0.05
"""How far off a sum is, to begin with; then what was seen, within these."""

_ERRORS = (0.02, 0.3)

_LUCK = 0.06
"""By so much less than expected one that was not measured may take, besides what is not known of
its parts, and still is not looked for."""

_LEAST = 0.3
"""Of what is expected: what nobody knows anything of may be as fast as that."""

_Terms = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class _Fit:
    """Factors of what terms take by their rooflines: expected ones and their covariance."""

    scale: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    known: int
    bounds: dict[_Terms, float] = field(default_factory=dict)

    def least_sec(self, terms: _Terms) -> float:
        """Computed once: a network of thousands of candidates is a few blocks, over and over."""
        if terms not in self.bounds:
            self.bounds[terms] = self._least_sec(terms)
        return self.bounds[terms]

    def _least_sec(self, terms: _Terms) -> float:
        index = [number for number, _ in terms]
        amounts = self.scale[index] * [amount for _, amount in terms]
        expected = float(amounts @ self.mean[index])
        spread = float(np.sqrt(amounts @ self.covariance[np.ix_(index, index)] @ amounts))
        return max((1 - _LUCK) * expected - spread, _LEAST * expected, 0.0)


class AdditiveTimes:
    """Learns what a graph's heavy operators take on each target, from candidates that have them.

    Parameters
    ----------
    graph : DataflowGraph
        What candidates are of.
    work : GraphWork
        Of the same graph.
    alike : callable
        The same value for bindings that compute the same.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> from tvm import relax
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> mod = graph([(8, 8)], lambda emit, x: emit(relax.op.matmul(x, x)))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> times = AdditiveTimes(dataflow, GraphWork(dataflow), lambda index: index)
    >>> times.note(tvm, 0b1, 1e-6)
    >>> times.least_sec(tvm, 0b1) is None  # One does not tell.
    True
    """

    def __init__(
        self, graph: DataflowGraph, work: GraphWork, alike: Callable[[int], Hashable]
    ) -> None:
        self._work = work
        # Conversions are no work, but what a partition takes with another layout at its border is
        # something else than without.
        turned = {i for seam in graph.seams for i in bits(seam.mask)}
        heavy = [i for i in range(len(graph)) if graph.op_kind(i) not in _FOLLOWS or i in turned]
        self._graph = graph
        self._heavy = sum(1 << index for index in heavy)
        # The call itself, and what crosses its border, come before the operators.
        numbers: dict[Hashable, int] = {}
        self._number = {i: 2 + numbers.setdefault(alike(i), len(numbers)) for i in heavy}
        self._first = {number: index for index, number in reversed(self._number.items())}
        self._terms: dict[int, _Terms] = {}
        self._seen: dict[BackendTarget, dict[_Terms, float]] = {}
        self._fits: dict[BackendTarget, _Fit] = {}

    def copied(self) -> AdditiveTimes:
        """What is known now, whatever is learned later."""
        same = AdditiveTimes.__new__(AdditiveTimes)
        same.__dict__.update(self.__dict__)
        same._seen = {target: dict(seen) for target, seen in self._seen.items()}
        same._fits = dict(self._fits)
        return same

    def note(self, target: BackendTarget, nodes: int, seconds: float) -> None:
        """Learn from what a candidate took.

        Parameters
        ----------
        target : BackendTarget
            On which it ran.
        nodes : int
            Its bindings, a bit set.
        seconds : float
            Of two measurements of the same the least counts.
        """
        if nodes & self._heavy and seconds > 0:
            seen, terms = self._seen.setdefault(target, {}), self._terms_of(nodes)
            seen[terms] = min(seconds, seen.get(terms, seconds))

    def least_sec(self, target: BackendTarget, nodes: int) -> float | None:
        """What a candidate hardly takes less than.

        Parameters
        ----------
        target : BackendTarget
            On which it would run.
        nodes : int
            Its bindings, a bit set.

        Returns
        -------
        float or None
            None where too little is known of the target, or the candidate has nothing heavy.

        Notes
        -----
        Of ``n`` measured candidates and ``k`` terms a fit takes O(n k^2 + k^3), an answer the
        square of its own terms. What was learned counts once it is a tenth more.
        """
        seen = self._seen.get(target, {})
        if len(seen) < _ENOUGH or not nodes & self._heavy or len(self._first) > _MOST_TERMS:
            return None
        fit = self._fits.get(target)
        if fit is None or len(seen) > 1.1 * fit.known:
            fit = self._fits[target] = self._fit(target, seen)
        return fit.least_sec(self._terms_of(nodes))

    def _terms_of(self, nodes: int) -> _Terms:
        """Terms by number, and how much of each there is."""
        if nodes not in self._terms:
            amounts = {0: 1.0, 1: float(self._work.of(nodes).bytes)}
            for index in bits(nodes & self._heavy & ~self._graph.idle(nodes)):
                number = self._number[index]
                amounts[number] = amounts.get(number, 0.0) + 1.0
            self._terms[nodes] = tuple(sorted(amounts.items()))
        return self._terms[nodes]

    def _nominal(self, spec: DeviceSpec) -> np.ndarray:
        """What one of each term takes on a nominal device."""
        seconds = [spec.launch_sec, 1 / spec.bytes_per_sec, *[0.0] * len(self._first)]
        for number, index in self._first.items():
            work = self._work.of(1 << index)
            bound_sec = work.flops / spec.float_flops_per_sec or work.bytes / spec.bytes_per_sec
            seconds[number] = max(bound_sec, spec.launch_sec)
        return np.array(seconds)

    def _fit(self, target: BackendTarget, seen: dict[_Terms, float]) -> _Fit:
        amounts = np.zeros((len(seen), 2 + len(self._first)))
        for row, terms in zip(amounts, seen, strict=True):
            for number, amount in terms:
                row[number] = amount
        seconds = np.fromiter(seen.values(), float)
        nominal = self._nominal(NOMINAL[device_of(target.device).name])
        scale = nominal * np.median(seconds / (amounts @ nominal))
        # Errors are relative: each sum is to be one of what was measured.
        shares = amounts * scale / seconds[:, None]
        product, total = shares.T @ shares, shares.sum(axis=0)
        trust = np.full(len(scale), _PRIOR**-2)
        trust[:2] = _PRIOR_OF_BORDERS**-2
        error = _ERROR
        for _ in range(2):
            covariance = np.linalg.inv(product / error**2 + np.diag(trust))
            mean = covariance @ (total / error**2 + trust)
            off = np.median(np.abs(shares @ mean - 1))
            # Of a normal distribution half lies within 0.67 deviations.
            error = float(np.clip(off / 0.6745, *_ERRORS))
        return _Fit(scale, mean, covariance, len(seen))
