"""Finds the partitions that make a whole model wrong although each passed alone.

A candidate is checked on weights and inputs of the sign and scale of the real ones. A library may
still be wrong on the real ones only, or only beside others. So each partition of a wrong model is
compiled with its real weights, run on what the reference gives to it, and compared with what the
reference makes of that. Where all are right so, a bisection over whole models finds the first one
with which the result is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tvm

from collage.backends.contract import TargetSet, is_native
from collage.backends.contract.errors import OutOfTimeError
from collage.cost.base import CostStatus
from collage.cost.deadline import Deadline
from collage.cost.measure.whole_models.model_builder import ModelJob
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.reference import Sample, sample_of
from collage.cost.reference.evaluator import evaluate_values
from collage.cost.reference.rounding import fewest_digits
from collage.end_to_end.evaluation import Contender, Evaluation, Refusal
from collage.end_to_end.repair import without
from collage.passes import extract
from collage.passes.lower import boundary
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import Partitioning

_NAMED = 4
"""Operators of a partition that a reason names."""


@dataclass(frozen=True)
class Model:
    """A model whose partitions are looked at.

    Attributes
    ----------
    mod, graph : tvm.IRModule, DataflowGraph
        The normalized module, and its ``main``.
    targets : TargetSet
        What partitions are compiled for.
    cost_model : MeasuredCostModel
        Compiles and runs.
    """

    mod: tvm.IRModule
    graph: DataflowGraph
    targets: TargetSet
    cost_model: MeasuredCostModel

    def alone(self, candidate: Candidate) -> tvm.IRModule:
        """A module of just this partition, with its weights."""
        return extract(self.mod, self.graph, candidate)

    def describe(self, candidate: Candidate) -> str:
        """A partition in words: its first operators, and who runs it."""
        names = [self.graph.op_name(index) for index in bits(candidate.nodes)]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"{' + '.join(names[:_NAMED])}{more} on {candidate.backend}"


def wrong_alone(
    model: Model,
    partitioning: Partitioning,
    sample: Sample,
    folder: Path,
    deadline: Deadline,
) -> list[Refusal]:
    """The partitions that compute something wrong from what the reference gives to them.

    Parameters
    ----------
    model : Model
        What is partitioned.
    partitioning : Partitioning
        Of the wrong model.
    sample : Sample
        Of the whole model.
    folder : Path
        Libraries are compiled there.
    deadline : Deadline
        After which nothing more is compiled.

    Returns
    -------
    list of Refusal
        With how wrong each is; empty where all that could be checked are right.

    Raises
    ------
    OutOfTimeError
        When the time for measuring is up.
    """
    candidates = [c for c in partitioning.candidates if not c.inline]
    taken = {c: boundary(model.graph, c.nodes)[0] for c in candidates}
    variables = {var for inputs in taken.values() for var in inputs}
    values = evaluate_values(model.mod, sample.inputs, variables)
    # Tuples are no inputs that a library could be run on by itself.
    candidates = [c for c in candidates if all(var in values for var in taken[c])]
    modules = [model.alone(candidate) for candidate in candidates]
    samples = [
        sample_of(module, [values[var] for var in taken[c]], fewest_digits([c.target]))
        for c, module in zip(candidates, modules, strict=True)
    ]
    jobs = [
        ModelJob(module, folder / str(index) / "model.so", model.describe(candidate))
        for index, (candidate, module) in enumerate(zip(candidates, modules, strict=True))
    ]
    compiled = model.cost_model.whole_models(model.targets).compile(jobs, model.targets, deadline)
    built = [i for i, result in enumerate(compiled) if result.library is not None]
    libraries = [job.output for job in (jobs[i] for i in built)]
    results = model.cost_model.run(libraries, [samples[i] for i in built], model.targets)
    return [
        Refusal(candidates[i], f"{model.describe(candidates[i])}: {result.cost.reason}")
        for i, result in zip(built, results, strict=True)
        if result.cost.status is CostStatus.WRONG_RESULT
    ]


def wrong_together(
    model: Model, evaluation: Evaluation, try_out: Callable[[Contender], Evaluation]
) -> list[Refusal]:
    """The first partition with which a whole model is wrong, TVM running all after it.

    Parameters
    ----------
    model : Model
        What is partitioned.
    evaluation : Evaluation
        Of the wrong model.
    try_out : callable
        Compiles and checks a whole model.

    Returns
    -------
    list of Refusal
        One, or none where the whole model is not wrong.

    Raises
    ------
    OutOfTimeError
        When there was no time for that.
    """
    partitioning = evaluation.contender.partitioning
    external = [c for c in partitioning.candidates if not c.inline and not is_native(c.target)]

    def reason(kept: int) -> str:
        """How wrong the model is with so many of them; empty where it is right."""
        gone = set(external[kept:])
        native = model.targets.native
        some = without(model.graph, partitioning, gone, native) if gone else partitioning
        cost = try_out(Contender("bisection", some)).cost
        if cost.status is CostStatus.UNKNOWN:
            raise OutOfTimeError("the time was up before what is wrong was found")
        return cost.reason if cost.status is CostStatus.WRONG_RESULT else ""

    if not external or reason(0):
        return []
    right, wrong, said = 0, len(external), evaluation.cost.reason
    while wrong - right > 1:
        middle = (right + wrong) // 2
        found = reason(middle)
        if found:
            wrong, said = middle, found
        else:
            right = middle
    culprit = external[wrong - 1]
    text = f"{model.describe(culprit)}: right alone, but with it the whole model is wrong: {said}"
    return [Refusal(culprit, text)]
