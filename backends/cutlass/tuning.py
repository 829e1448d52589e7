"""Which configuration runs a spec: remembered, measured, or the heuristic's first guess.

Everything that a choice depends on is part of a record's key; the record holds the time of every
configuration that was tried, so that a later, narrower question is answered from it as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collage.backends.contract.errors import CodegenError
from collage.backends.cutlass.families import Configuration, KernelSpec
from collage.backends.cutlass.library import cutlass_version
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.question import Job, Question
from collage.backends.cutlass.trials import trials
from collage.backends.storage import TuningRecord, TuningStage, TuningStore
from collage.backends.storage.tuning_stage import nobody_builds
from collage.backends.toolchain.cuda_toolkit import find_toolkit

SCHEMA = 1
"""Of this backend's records in the tuning log."""

LONELY = "not compiled: too few other operators here would use its kernel"
"""Why a record has no time of a configuration that nothing is wrong with."""

TOLERANCE = {"float16": 1e-2, "bfloat16": 4e-2, "float32": 1e-3, "tf32": 1e-2}
"""Largest difference between two right results, relative to the largest value, by dtype or math."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job: its time and a sample of its result, or why there is none.

    Attributes
    ----------
    sec : float or None
        Median time of one run on the device.
    sample : ndarray or None
        float32; the same elements of the result for every configuration of a spec.
    error : str
        Empty when it ran.
    """

    sec: float | None = None
    sample: NDArray[np.float32] | None = None
    error: str = ""


class Profiler(Protocol):
    """Runs jobs on a device."""

    device: Mapping[str, Any]
    """Facts of the device."""

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome]:
        """Build all jobs' units in parallel and run them one by one on equal random data.

        What became of each is told in the order of the jobs, while later ones are being built;
        closing ends what is still built and run.
        """


class Tuner(TuningStage[Question, Configuration]):
    """Chooses configurations.

    Parameters
    ----------
    store : TuningStore
        What was found before, and where findings go.
    profiler : Profiler or None
        None where no GPU of the architecture is here.
    options : CutlassOptions
        Of the target.
    arch : str
        For example ``sm_90a``.
    hurried : bool
        Choose among fewer, that few kernels are compiled for (:func:`~.trials.trials`).
    """

    def __init__(
        self,
        store: TuningStore,
        profiler: Profiler | None,
        options: CutlassOptions,
        arch: str,
        *,
        hurried: bool = False,
    ) -> None:
        super().__init__(store, arch, None if profiler is None else profiler.device)
        self.profiler, self.options = profiler, options
        self._hurried = hurried

    def choose(
        self,
        questions: Sequence[Question],
        settled: Callable[[KernelSpec], None] = nobody_builds,
    ) -> dict[KernelSpec, Configuration]:
        """A configuration for every spec; each distinct spec is measured once.

        Without a profiler the store answers for the GPU of this architecture that was tuned on
        last; what it does not know gets the best guess.

        Parameters
        ----------
        questions : sequence of Question
            Their specs may repeat.
        settled : callable, optional
            Told of each spec as soon as its configuration is known.

        Returns
        -------
        dict[KernelSpec, Configuration]
            One for each spec.

        Raises
        ------
        CodegenError
            When none of a spec's configurations runs on the device; all others are chosen then.
        ReplayMissError
            In a replay, when the store does not know a spec.
        """
        distinct = {question.spec: question for question in questions}
        known = self.answers(distinct.values(), lambda question: settled(question.spec))
        return {spec: known.get(q, q.configurations[0]) for spec, q in distinct.items()}

    def key(self, question: Question) -> dict[str, Any]:
        return {
            "spec": question.spec.key(),
            "arch": self.arch,
            "cutlass": cutlass_version(),
            "nvcc": find_toolkit().version,
            "fast_math": self.options.use_fast_math,
        }

    def describe(self, question: Question) -> str:
        return _words(question.spec)

    def look_up(self, question: Question) -> Configuration | None:
        if len(question.configurations) == 1:
            return question.configurations[0]
        return super().look_up(question)

    def read(self, question: Question, record: TuningRecord) -> Configuration | None:
        times = {_row_key(t): t["sec"] for t in record.result["tried"]}
        rows = [
            (c, times.get(_row_key(_row(question, c)), "untried")) for c in question.configurations
        ]
        valid = [(c, sec) for c, sec in rows if isinstance(sec, float)]
        if not valid:
            return None
        if self.options.find_first_valid:
            return valid[0][0]
        # A replay chooses among what was tried, however little time there was.
        settled = self.store.replay or self._hurried
        if not settled and any(sec == "untried" for _, sec in rows):
            return None
        return min(valid, key=lambda row: row[1])[0]

    def measure(
        self, questions: Sequence[Question], failed: dict[Question, CodegenError]
    ) -> dict[Question, Configuration]:
        assert self.profiler is not None
        chosen: dict[Question, Configuration] = {}
        tried: dict[Question, list[tuple[Configuration, Outcome]]] = {q: [] for q in questions}
        # Whoever waits for a choice of two waits for few compilers: attention comes before
        # products, of which each has many kernels, and which cuBLAS has soon.
        nexts = self._first_trials(sorted(questions, key=lambda q: len(q.configurations)))
        while nexts:
            jobs = [Job.of(question, c) for question, few in nexts.items() for c in few]
            asked, nexts = nexts, {}
            with closing(self.profiler.run(jobs)) as outcomes:
                for question, few in asked.items():
                    tried[question] += [(c, next(outcomes)) for c in few]
                    pairs = _judged(question, tried[question])
                    valid = [(o.sec, c) for c, o in pairs if o.sec is not None]
                    left = _without(question, [c for c, _ in pairs])
                    if left and not valid:
                        nexts[question] = left[: len(few)]
                        continue
                    self._record_tried(question, pairs, left)
                    if valid:
                        chosen[question] = min(valid, key=lambda pair: pair[0])[1]
                    else:
                        failed[question] = _none_runs(question, [o for _, o in pairs])
        return chosen

    def _first_trials(
        self, questions: Sequence[Question]
    ) -> Mapping[Question, Sequence[Configuration]]:
        if self.options.find_first_valid:
            return {question: question.configurations[:1] for question in questions}
        return trials(questions, hurried=self._hurried)

    def _record_tried(
        self,
        question: Question,
        pairs: Sequence[tuple[Configuration, Outcome]],
        left: Sequence[Configuration],
    ) -> None:
        tried = [_row(question, c) | {"sec": o.sec, "error": o.error} for c, o in pairs]
        # What was left out for want of time stays a question to whoever has more.
        if not (self._hurried or self.options.find_first_valid):
            tried += [_row(question, c) | {"sec": None, "error": LONELY} for c in left]
        self.record(question, {"tried": tried})


def _without(question: Question, tried: Sequence[Configuration]) -> list[Configuration]:
    return [c for c in question.configurations if c not in tried]


def _judged(
    question: Question, tried: Sequence[tuple[Configuration, Outcome]]
) -> list[tuple[Configuration, Outcome]]:
    outcomes = judge(question.spec, [outcome for _, outcome in tried])
    return [(c, outcome) for (c, _), outcome in zip(tried, outcomes, strict=True)]


def judge(spec: KernelSpec, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Reject results that most of the others contradict.

    Parameters
    ----------
    spec : KernelSpec
        What all of them ran.
    outcomes : sequence of Outcome
        One for each configuration, with the results on equal data.

    Returns
    -------
    list of Outcome
        As given, but a result with non-numbers, or one that fewer than half of all results agree
        with, is an error.
    """
    tolerance = TOLERANCE["tf32" if spec.math == "tf32" else spec.dtype]
    samples = [o.sample for o in outcomes if o.sample is not None]
    judged = []
    for outcome in outcomes:
        sample = outcome.sample
        if sample is None:
            judged.append(outcome)
        elif not np.isfinite(sample).all():
            judged.append(Outcome(error="its result holds non-numbers"))
        elif 2 * sum(_agree(sample, other, tolerance) for other in samples) < len(samples):
            judged.append(Outcome(error="its result differs from that of most configurations"))
        else:
            judged.append(outcome)
    return judged


def _agree(left: NDArray[np.float32], right: NDArray[np.float32], tolerance: float) -> bool:
    if left.shape != right.shape or not np.isfinite(right).all():
        return False
    scale = max(float(np.abs(left).max(initial=0.0)), float(np.abs(right).max(initial=0.0)))
    return float(np.abs(left - right).max(initial=0.0)) <= tolerance * scale


def _row(question: Question, configuration: Configuration) -> dict[str, Any]:
    """What a record says of a tried configuration, besides how it went."""
    symbol = question.unit(configuration).symbol
    return {"configuration": configuration.as_dict(), "unit": symbol}


def _row_key(row: Mapping[str, Any]) -> str:
    """As canonical text; equal before and after writing it to a file."""
    return json.dumps([row["configuration"], row["unit"]], sort_keys=True)


def _words(spec: KernelSpec) -> str:
    return f"{spec.operator} {spec.sizes} ({spec.dtype}, {spec.epilogue})"


def _none_runs(question: Question, outcomes: Sequence[Outcome]) -> CodegenError:
    errors = "; ".join(sorted({outcome.error for outcome in outcomes}))
    return CodegenError(
        f"no configuration of {_words(question.spec)} runs: {errors}", value=question.spec.sizes
    )
