"""What fewer digits do to the outputs, predicted from products that are rounded one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, TargetSet
from collage.cost.deadline import NEVER, Deadline
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.cost.reference import Sample
from collage.cost.reference.rounding import EPSILON, fewest_digits
from collage.cost.reference.sensitivity import sensitivities
from collage.cost.workload.describe import call_flops
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits


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
        The format that products were rounded to.
    squares : mapping of int to float
        By the position of each product in the graph, the square of what rounding it does.
    work : mapping of int to int
        Its multiply-adds.

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
            Whose precisions matter.
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
        form = fewest_digits(targets)
        worst: dict[relax.Var, float] = {}
        for number, sample in enumerate(samples, 1):
            of = f", sample {number} of {len(samples)}" if len(samples) > 1 else ""

            def on_product(done: int, total: int, of: str = of) -> None:
                text = f"product {done} of {total} rounded to {form}{of}"
                progress(ProgressEvent("precision", done, total, text))

            found = sensitivities(mod, sample.inputs, form, deadline, on_product)
            worst = {var: max(error, worst.get(var, 0.0)) for var, error in found.items()}
        positions = {binding.var: index for index, binding in enumerate(graph.bindings)}
        squares = {positions[var]: error * error for var, error in worst.items()}
        work = {index: call_flops(graph.bindings[index].value) for index in squares}
        return cls(max_error, form, squares, work)

    def squared(self, candidate: Candidate) -> float:
        """What a candidate adds to the square of the error."""
        scale = self._scale(candidate.target)
        if scale == 0.0:
            return 0.0
        return scale * sum(self.squares.get(index, 0.0) for index in bits(candidate.nodes))

    def rounded(self, candidate: Candidate) -> int:
        """The products that a candidate computes with fewer digits, as a bit set of positions."""
        if self._scale(candidate.target) == 0.0:
            return 0
        return sum(1 << index for index in bits(candidate.nodes) if index in self.squares)

    def affordable(self, limit: float) -> int:
        """Products that may all be rounded within an error, as a bit set of their positions.

        Those are taken first whose error is the least for the work that they are.
        """
        order = sorted(self.squares, key=lambda i: self.squares[i] / max(1, self.work.get(i, 1)))
        left, taken = limit * limit, 0
        for index in order:
            if self.squares[index] <= left:
                left -= self.squares[index]
                taken |= 1 << index
        return taken

    def error(self, candidates: Iterable[Candidate]) -> float:
        """The error of candidates together."""
        return math.sqrt(sum(map(self.squared, candidates)))

    def _scale(self, target: BackendTarget) -> float:
        form = target.implementation.precision(target.options).form
        return 0.0 if form == "float32" else (EPSILON[form] / EPSILON[self.form]) ** 2
