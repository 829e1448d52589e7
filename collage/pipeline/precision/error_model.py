"""What fewer digits do to the outputs, predicted from products that are rounded one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, Precision, TargetSet
from collage.cost.deadline import NEVER, Deadline
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.cost.reference import Sample
from collage.cost.reference.rounding import EPSILON, fewest_digits
from collage.cost.reference.sensitivity import Rounding, in_form, sensitivities
from collage.cost.reference.sensitivity import in_bytes as reference_bytes
from collage.cost.workload.describe import call_flops
from collage.passes.in_bytes import Calibration
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.rules.filters.accepted import region_verdict

LARGEST_DIFFERENCE = 0.2
"""Up to which partitionings are looked for where a metric says what is allowed, and less of it."""


@dataclass(frozen=True)
class ErrorModel:
    """The error of a partitioning is the root of the sum of the squares of its products' errors.

    Errors of rounding are as good as random and independent, so their squares add up. What the
    model leaves out (what is rounded between products, errors that are not independent) shows when
    whole models are compared, where the measured error counts.

    Attributes
    ----------
    max_error : float
        What is allowed, relative to an output's largest value.
    form : str
        The format that products were rounded to; others do as much more or less as they have
        digits.
    squares : mapping of int to float
        By the position of each product in the graph, the square of what rounding it does.
    work : mapping of int to int
        Its multiply-adds.
    in_bytes : mapping of int to float
        Of those that can be computed in bytes, the square of what that does.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> exact, fewer = resolve_targets(
    ...     ["llvm", {"kind": "onednn", "precision": "bfloat16"}]
    ... )
    >>> model = ErrorModel(0.01, "bfloat16", {0: 9e-6, 1: 16e-6})
    >>> model.error([Candidate(0b11, fewer)]), model.error([Candidate(0b11, exact)])
    (0.005, 0.0)
    """

    max_error: float
    form: str
    squares: Mapping[int, float]
    work: Mapping[int, int] = field(default_factory=dict)
    in_bytes: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        max_error: float,
        mod: tvm.IRModule,
        graph: DataflowGraph,
        targets: TargetSet,
        samples: Sequence[Sample],
        deadline: Deadline = NEVER,
        progress: ProgressCallback = ignore,
    ) -> ErrorModel:
        """The model of one network, from what rounding each product does on samples.

        Parameters
        ----------
        max_error : float
            What is allowed.
        mod, graph : tvm.IRModule, DataflowGraph
            The normalized module, and its ``main``.
        targets : TargetSet
            Whose precisions matter, but for those that this processor has not got.
        samples : sequence of Sample
            What to run the network on; of a product's errors the largest counts.
        deadline : Deadline, optional
            Products that were not looked at by then are as bad as the worst.
        progress : callable, optional
            Told of each product.

        Returns
        -------
        ErrorModel
            Its squared errors are relative to the outputs' largest values.
        """
        form = fewest_digits(t for t in targets if _takes_any(t, graph))
        calibration = Calibration.of(mod["main"])
        steps = {graph.bindings[i].var: one for i, one in calibration.steps.items()}
        squares: dict[int, float] = {}
        bytes_squares: dict[int, float] = {}
        if form != "float32":
            found = _worst(mod, samples, in_form(form), form, deadline, progress)
            squares = _squares(graph, found)
        if steps:
            rounding = reference_bytes(steps, calibration.most)
            found = _worst(mod, samples, rounding, "bytes", deadline, progress)
            bytes_squares = _squares(graph, found)
        work = {i: call_flops(graph.bindings[i].value) for i in {*squares, *bytes_squares}}
        return cls(max_error, form, squares, work, bytes_squares)

    def squared(self, candidate: Candidate) -> float:
        """What a candidate adds to the square of the error."""
        return sum(self._squared(candidate.target, index) for index in bits(candidate.nodes))

    def _squared(self, target: BackendTarget, index: int) -> float:
        """What a product adds to the square of the error where a target computes it."""
        precision = target.implementation.precision(target.options)
        if precision is Precision.INT8 and index in self.in_bytes:
            return self.in_bytes[index]
        form = target.implementation.stored_as(target.options).form
        if form == "float32" or index not in self.squares:
            return 0.0
        return (EPSILON[form] / EPSILON[self.form]) ** 2 * self.squares[index]

    def is_affordable(self, candidate: Candidate, chosen: Affordable) -> bool:
        """Whether a candidate computes only those products with fewer digits that may be.

        Parameters
        ----------
        candidate : Candidate
            Of any target.
        chosen : Affordable
            From :meth:`affordable`.

        Returns
        -------
        bool
            False where it rounds others besides.
        """
        target = candidate.target
        others = ~chosen.others
        if target.implementation.precision(target.options) is Precision.INT8:
            if any(index in self.in_bytes for index in bits(candidate.nodes & ~chosen.in_bytes)):
                return False
            others &= ~chosen.in_bytes
        return not any(self._squared(target, index) for index in bits(candidate.nodes & others))

    def affordable(self, limit: float) -> Affordable:
        """Products that may all be rounded within an error.

        Those are taken first whose error is the least for the work that they are: in bytes, and of
        the others those that it is worth to round to the format.
        """
        left = limit * limit
        chosen: list[int] = []
        for squares in (self.in_bytes, self.squares):
            before = sum(chosen)
            taken = 0
            open_ = [index for index in squares if not before >> index & 1]
            for index in sorted(open_, key=lambda i: squares[i] / max(1, self.work.get(i, 1))):
                if squares[index] <= left:
                    left -= squares[index]
                    taken |= 1 << index
            chosen.append(taken)
        return Affordable(*chosen)

    def error(self, candidates: Iterable[Candidate]) -> float:
        """The error of candidates together."""
        return math.sqrt(sum(map(self.squared, candidates)))


@dataclass(frozen=True)
class Affordable:
    """Products that may be computed with fewer digits, as bit sets of their positions.

    Attributes
    ----------
    in_bytes : int
        Those in bytes.
    others : int
        Those that are rounded to another format.
    """

    in_bytes: int
    others: int


def _takes_any(target: BackendTarget, graph: DataflowGraph) -> bool:
    """Whether a target takes anything of a graph: what a processor lacks, a backend refuses."""
    numbers = range(len(graph.bindings))
    return any(region_verdict(graph, Candidate(1 << number, target)) for number in numbers)


def _worst(
    mod: tvm.IRModule,
    samples: Sequence[Sample],
    rounding: Rounding,
    form: str,
    deadline: Deadline,
    progress: ProgressCallback,
) -> dict[relax.Var, float]:
    """The largest error of each product over all samples."""
    worst: dict[relax.Var, float] = {}
    for number, sample in enumerate(samples, 1):
        of = f", sample {number} of {len(samples)}" if len(samples) > 1 else ""

        def on_product(done: int, total: int, of: str = of) -> None:
            text = f"product {done} of {total} rounded to {form}{of}"
            progress(ProgressEvent("precision", done, total, text))

        found = sensitivities(mod, sample.inputs, rounding, deadline, on_product)
        worst = {var: max(error, worst.get(var, 0.0)) for var, error in found.items()}
    return worst


def _squares(graph: DataflowGraph, errors: Mapping[relax.Var, float]) -> dict[int, float]:
    positions = {binding.var: index for index, binding in enumerate(graph.bindings)}
    return {positions[var]: error * error for var, error in errors.items()}
