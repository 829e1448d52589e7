"""The end-to-end comparison by measurement: look up the log, compile what is missing, time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import tvm

from collage.backends.contract import BuildContext, TargetSet
from collage.backends.contract.errors import OutOfTimeError
from collage.cost.base import Cost, CostStatus
from collage.cost.call_times import CallTime
from collage.cost.database.record import Record
from collage.cost.deadline import NEVER, Deadline
from collage.cost.measure.whole_models.model_builder import ModelJob, ModelResult
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.models.whole_models import WholeModels
from collage.cost.reference import Sample
from collage.cost.workload.workload import Workload
from collage.end_to_end._base import EndToEndComparison
from collage.end_to_end.culprits import Model, wrong_alone, wrong_together
from collage.end_to_end.evaluation import Contender, Evaluation, Lowered, Refusal, Seen, everybody
from collage.end_to_end.verdict import intricacy
from collage.search.dataflow import DataflowGraph

_PATIENCE_SEC = 3600.0
"""For an answer to have one."""

_QUIET_SHARE = 0.5
"""Of what compiling takes beside builders on all cores, where they go on meanwhile: at the end,
with the cores to itself and its kernels known, a model took a third in searches of 70 to 90 s."""

_START_SEC = 2.0
"""For a model's process to begin, with nobody else on the cores."""

_TRIAL_ROUNDS = 3
"""That those play who are tried out together: the middle one of three is not one bad moment."""


class MeasuredComparison(EndToEndComparison):
    """Compiles whole partitionings and times them in alternation, unless the log has the times.

    Parameters
    ----------
    mod, graph, targets, context
        As :class:`EndToEndComparison` has them.
    model : MeasuredCostModel
        Times, or answers from the log.
    samples : sequence of Sample
        What to run on, and what must come out; timed on the first.
    data : str
        A digest of samples that the user gave.
    compiling, timing : Deadline, optional
        After which nothing is compiled any longer, and nothing timed.
    sharing : Deadline, optional
        After which whoever is tried out no longer waits for others that measure on the device.
    max_error : float, optional
        Whoever is off by more than this share of an output's largest value computes a wrong result,
        though rounding explains it.
    metric : str, optional
        What that is in place of such a share; the samples have it.

    Examples
    --------
    In a strict replay the log alone answers, and an empty one has no answer:

    >>> from pathlib import Path
    >>> import numpy as np
    >>> from tvm.relax import op
    >>> from collage.cost import MeasuredCostModel
    >>> from collage.cost.database import JsonLinesDatabase
    >>> from collage.end_to_end import Contender
    >>> from collage.search import greedy
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> targets = resolve_targets(["llvm"])
    >>> mod = graph([(1,)], lambda emit, x: op.exp(x))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> context = BuildContext(Path("cache"), Path("work"), replay=True)
    >>> model = MeasuredCostModel(context, JsonLinesDatabase(None), replay_only=True)
    >>> x = np.zeros(1, "float32")
    >>> samples = [Sample.of([x], [np.exp(x)])]
    >>> comparison = MeasuredComparison(
    ...     mod, dataflow, targets, context, model=model, samples=samples
    ... )
    >>> comparison.compare([Contender("greedy", greedy(dataflow, targets))])
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.ReplayMissError: ...
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        graph: DataflowGraph,
        targets: TargetSet,
        context: BuildContext,
        *,
        model: MeasuredCostModel,
        samples: Sequence[Sample],
        data: str = "",
        compiling: Deadline = NEVER,
        timing: Deadline = NEVER,
        sharing: Deadline = NEVER,
        max_error: float = math.inf,
        metric: str = "",
    ) -> None:
        super().__init__(mod, graph, targets, context)
        self._max_error, self._metric = max_error, metric
        self._model = model
        self._samples = samples
        self._data = data
        self._compiling, self._timing, self._sharing = compiling, timing, sharing
        self._failures: dict[str, Cost] = {}
        self._tried: dict[str, Record] = {}
        self._calls: dict[str, tuple[CallTime, ...]] = {}

    @property
    def _whole(self) -> WholeModels:
        return self._model.whole_models(self._targets)

    def _surroundings(self) -> str:
        return self._model.surroundings(tuple(self._targets))

    def settle(self) -> None:
        """Wait for the samples."""
        len(self._samples)

    def try_out(
        self,
        contenders: Sequence[Contender],
        deadline: Deadline = NEVER,
        enough: Callable[[], float] = everybody,
    ) -> tuple[list[Evaluation], Seen]:
        """Compile, check and time each in a process of its own; see the base class."""
        deadline = deadline.or_earlier(Deadline.after(_PATIENCE_SEC))
        begin = time.monotonic()
        lowered: list[Lowered] = []
        for contender in contenders:
            # Of thousands of operators each takes seconds, too; but of two one may compile in a
            # quarter of the time.
            if len(lowered) < max(2, enough()):
                lowered.append(self._lowered(contender))
        variants = {variant.key: variant for variant in lowered}
        for key in variants:
            self._failures.pop(key, None)
        self._compile(variants, deadline, enough, self._sharing)
        compiled = time.monotonic()
        found = [variant for key, variant in variants.items() if key in self._libraries]
        if found:
            rounds = 1 if len(found) == 1 else _TRIAL_ROUNDS
            question = replace(self._question(found), rounds=rounds, provisional=True)
            libraries = [self._libraries[variant.key].path for variant in found]
            records = self._whole.measure(question, libraries, deadline, self._sharing)
            for variant, record in zip(found, records, strict=True):
                # Who ran before and had no turn now does run.
                if record.cost.status is not CostStatus.UNKNOWN or variant.key not in self._tried:
                    self._tried[variant.key] = record
        seen = self._seen(begin, compiled, [self._tried[variant.key] for variant in found])
        late = [Evaluation.without_time(one) for one in contenders[len(lowered) :]]
        return [*(self._evaluation(variant, None) for variant in lowered), *late], seen

    def _seen(self, begin: float, compiled: float, records: Sequence[Record]) -> Seen:
        """What it would take when nothing else is going on: as whoever shares out the time has it,
        each but the first of those that are checked takes half as long."""
        compile_sec, check_sec = compiled - begin, time.monotonic() - compiled
        if self._targets.device.compiles_beside:
            compile_sec *= _QUIET_SHARE
            # Not the waiting for a device on which candidates are timed.
            check_sec = min(check_sec, _START_SEC + sum(record.run_sec for record in records))
        models = max(1, len(records))
        return Seen(compile_sec, check_sec / (0.5 + 0.5 * models), models)

    def culprits(self, evaluation: Evaluation) -> list[Refusal]:
        """See the base class; each is recorded as computing a wrong result."""
        partitioning = evaluation.contender.partitioning
        model = Model(self._mod, self._graph, self._targets, self._model)
        found: list[Refusal] = []
        with suppress(OutOfTimeError):
            for number, sample in enumerate(self._samples):
                place = self._context.work_dir / f"parts-{evaluation.key[:16]}-{number}"
                found = wrong_alone(model, partitioning, sample, place, self._compiling)
                if found:
                    break
            else:
                found = wrong_together(
                    model, evaluation, lambda one: self.try_out([one], self._timing)[0][0]
                )
        for refusal in found:
            workload = Workload.from_module(model.alone(refusal.candidate))
            self._model.condemn(workload, refusal.candidate.target, refusal.reason)
        return found

    def _evaluate(self, lowered: Sequence[Lowered]) -> list[Evaluation]:
        # Contenders that came out the same are compiled and timed once, under the first's name.
        variants: dict[str, Lowered] = {}
        for variant in lowered:
            variants.setdefault(variant.key, variant)
        records = self._records(variants)
        return [self._evaluation(variant, records.get(variant.key)) for variant in lowered]

    def _evaluation(self, variant: Lowered, record: Record | None) -> Evaluation:
        if record is None or record.cost.status is CostStatus.UNKNOWN:
            # Timed on its own, at least: to be had in time, though no comparison.
            record = self._tried.get(variant.key, record)
        if record is None:
            return Evaluation.of(variant, self._failures[variant.key])
        error = record.largest_error if record.cost.is_valid else None
        if error is not None and error > self._max_error:
            what = (
                f"{self._metric} is {error:.2g}"
                if self._metric
                else f"off by {error:.2g} of an output's largest value"
            )
            reason = (
                f"{what}, {self._max_error:g} is allowed; "
                f"it took {record.cost.median_sec * 1e3:.3g} ms"
            )
            return Evaluation.of(variant, Cost(CostStatus.WRONG_RESULT, reason=reason), error)
        evaluation = Evaluation.of(variant, record.cost, error, record.rounds)
        if record.calls:
            self._calls[variant.key] = record.calls
        # In each contest after the first one it is timed as a whole alone.
        return replace(evaluation, calls=self._calls.get(variant.key, ()))

    def _records(self, variants: Mapping[str, Lowered]) -> dict[str, Record]:
        """Times of those that can be compiled; nothing is compiled when the log has them."""
        while True:
            rest = [variant for key, variant in variants.items() if key not in self._failures]
            rest.sort(key=intricacy)
            if not rest:
                return {}
            question = self._question(rest)
            records = self._whole.recorded(question)
            # Where some turn out not to compile, the log may still hold the others.
            if records is None and self._compile(variants, self._compiling):
                libraries = [self._libraries[variant.key].path for variant in rest]
                records = self._whole.measure(question, libraries, self._timing)
            if records is not None:
                return dict(zip((variant.key for variant in rest), records, strict=True))

    def _question(self, variants: Sequence[Lowered]) -> EndToEndQuestion:
        targets = tuple(self._targets)
        models = [
            WholeModel(
                *(v.key, v.contender.name, targets),
                taken_apart=v.key not in self._calls,
                weights_bytes=v.memory.weights_bytes if v.memory else 0,
                held_bytes=v.memory.held_bytes if v.memory else 0,
            )
            for v in variants
        ]
        return EndToEndQuestion(models, self._samples, data=self._data)

    def _compile(
        self,
        variants: Mapping[str, Lowered],
        deadline: Deadline,
        enough: Callable[[], float] = everybody,
        sharing: Deadline = NEVER,
    ) -> bool:
        """Compile those not compiled yet, all at once; whether none of them failed."""
        missing = [
            variant
            for key, variant in variants.items()
            if key not in self._libraries and key not in self._failures
        ]
        if not missing:
            return True
        jobs = [ModelJob(v.module, self._place(v.key), v.contender.name) for v in missing]
        compiled: list[int] = []

        def done(index: int, result: ModelResult) -> None:
            if result.library is not None:
                compiled.append(index)

        end = Deadline(lambda: -math.inf if len(compiled) >= enough() else deadline.end)
        results = self._whole.compile(jobs, self._targets, end, done, sharing)
        failed = []
        for variant, result in zip(missing, results, strict=True):
            if result.library is None:
                self._failures[variant.key] = Cost(result.status, reason=result.reason)
                failed.append(variant)
            else:
                self._libraries[variant.key] = result.library
        # A replay asks for these too.
        costs = [self._failures[variant.key] for variant in failed]
        self._whole.record_failures(self._question(failed), costs)
        return not failed
