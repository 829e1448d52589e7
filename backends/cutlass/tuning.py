"""Which configuration runs a spec: remembered, measured, or the heuristic's first guess.

Everything that a choice depends on is part of a record's key; the record holds the time of every
configuration that was tried, so that a later, narrower question is answered from it as well.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collage.backends.contract.errors import CodegenError
from collage.backends.cutlass.families._base import Configuration, KernelSpec, OperatorFamily
from collage.backends.cutlass.library import cutlass_version
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.unit import Unit
from collage.backends.storage.tuning_store import TuningStore
from collage.backends.toolchain.cuda_toolkit import compute_capability, find_toolkit

SCHEMA = 1
"""Of this backend's records in the tuning log."""

TOLERANCE = {"float16": 1e-2, "bfloat16": 4e-2, "float32": 1e-3, "tf32": 1e-2}
"""Largest difference between two right results, relative to the largest value, by dtype or math."""


@dataclass(frozen=True)
class Question:
    """A spec, and the configurations it could be run with, the best guess first."""

    spec: KernelSpec
    family: OperatorFamily
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True)
class Job:
    """One configuration to be built and run."""

    spec: KernelSpec
    configuration: Configuration
    unit: Unit
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, question: Question, configuration: Configuration) -> Job:
        """The job that runs a question's spec with one configuration."""
        spec, family = question.spec, question.family
        unit = Unit.of(family.render(spec, configuration))
        return cls(spec, configuration, unit, family.launch_sizes(spec, configuration))


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

    device: str
    """The device's name."""

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome]:
        """Build all jobs' units in parallel and run them one by one on equal random data.

        What became of each is told in the order of the jobs, while later ones are being built;
        closing ends what is still built and run.
        """


class Tuner:
    """Chooses configurations, with a log and, where there is a device, a profiler."""

    def __init__(
        self, log: TuningStore, profiler: Profiler | None, options: CutlassOptions, arch: str
    ) -> None:
        self.log, self.profiler, self.options, self.arch = log, profiler, options, arch

    def choose(self, questions: Sequence[Question]) -> dict[KernelSpec, Configuration]:
        """A configuration for every spec; each distinct spec is measured once.

        Without a profiler the log answers for the GPU of this architecture that was tuned on last;
        what it does not know gets the best guess.

        Raises
        ------
        CodegenError
            When none of a spec's configurations runs on the device; all others are chosen then.
        ReplayMissError
            In a replay, when the log does not know a spec.
        """
        chosen, unknown = self._ask({question.spec: question for question in questions}.values())
        if unknown and self.log.replay:
            raise self.log.miss(_words(unknown[0].spec), len(unknown))
        if self.profiler is None:
            return chosen | {question.spec: question.configurations[0] for question in unknown}
        if not unknown:
            return chosen
        measure = self._first_valid if self.options.find_first_valid else self._measured
        failed: list[CodegenError] = []
        # First what nobody else is at, then the rest, which is found then or is nobody's any more.
        for patient in (False, True):
            keys = [self._key(question.spec) for question in unknown]
            with self.log.claim(keys, patient=patient) as held:
                left = [q for q, is_held in zip(unknown, held, strict=True) if not is_held]
                own = [q for q, is_held in zip(unknown, held, strict=True) if is_held]
                found, open_questions = self._ask(own)
                chosen |= found | measure(open_questions, self.profiler, failed)
            unknown = left
        if failed:
            raise failed[0]
        return chosen

    def _ask(
        self, questions: Iterable[Question]
    ) -> tuple[dict[KernelSpec, Configuration], list[Question]]:
        """What needs no measurement, and the questions that are left."""
        device = self._device()
        chosen: dict[KernelSpec, Configuration] = {}
        unknown = []
        for question in questions:
            answer = self._known(question, device)
            if answer is None:
                unknown.append(question)
            else:
                chosen[question.spec] = answer
        return chosen, unknown

    def _device(self) -> dict[str, Any] | None:
        """The device whose records answer, None where there is none."""
        capability = compute_capability(self.arch)
        if self.profiler is None:
            return self.log.device_elsewhere(capability)
        return {"name": self.profiler.device, "compute_capability": capability}

    def _key(self, spec: KernelSpec) -> dict[str, Any]:
        return {
            "spec": spec.key(),
            "arch": self.arch,
            "cutlass": cutlass_version(),
            "nvcc": find_toolkit().version,
            "fast_math": self.options.use_fast_math,
        }

    def _known(self, question: Question, device: Mapping[str, Any] | None) -> Configuration | None:
        """The answer that needs no measurement, or None."""
        if len(question.configurations) == 1:
            return question.configurations[0]
        found = None if device is None else self.log.find(self._key(question.spec), device)
        return None if found is None else self._remembered(question, found.result["tried"])

    def _remembered(
        self, question: Question, tried: Sequence[Mapping[str, Any]]
    ) -> Configuration | None:
        """The answer from a record, or None where it leaves the question open."""
        times = {_row_key(t): t["sec"] for t in tried}
        rows = [
            (c, times.get(_row_key(_row(question, c)), "untried")) for c in question.configurations
        ]
        valid = [(c, sec) for c, sec in rows if isinstance(sec, float)]
        if self.options.find_first_valid and valid:
            return valid[0][0]
        if any(sec == "untried" for _, sec in rows) or not valid:
            return None
        return min(valid, key=lambda row: row[1])[0]

    def _measured(
        self, questions: Sequence[Question], profiler: Profiler, failed: list[CodegenError]
    ) -> dict[KernelSpec, Configuration]:
        """The fastest of each; what nothing runs is added to ``failed``."""
        jobs = [Job.of(q, c) for q in questions for c in q.configurations]
        chosen = {}
        with closing(profiler.run(jobs)) as outcomes:
            for question in questions:
                own = judge(question.spec, [next(outcomes) for _ in question.configurations])
                pairs = list(zip(question.configurations, own, strict=True))
                self._record(question, pairs)
                valid = [(c, o.sec) for c, o in pairs if o.sec is not None]
                if valid:
                    chosen[question.spec] = min(valid, key=lambda pair: pair[1])[0]
                else:
                    failed.append(_none_runs(question, own))
        return chosen

    def _first_valid(
        self, questions: Sequence[Question], profiler: Profiler, failed: list[CodegenError]
    ) -> dict[KernelSpec, Configuration]:
        """In rounds: every open question's next configuration, all built in parallel.

        What nothing runs is added to ``failed``.
        """
        chosen: dict[KernelSpec, Configuration] = {}
        tried: dict[KernelSpec, list[tuple[Configuration, Outcome]]] = {}
        open_questions = list(questions)
        while open_questions:
            nexts = [q.configurations[len(tried.get(q.spec, []))] for q in open_questions]
            jobs = [Job.of(q, c) for q, c in zip(open_questions, nexts, strict=True)]
            left = []
            for q, c, outcome in zip(open_questions, nexts, profiler.run(jobs), strict=True):
                tried.setdefault(q.spec, []).append((c, outcome))
                if outcome.sec is not None:
                    chosen[q.spec] = c
                elif len(tried[q.spec]) == len(q.configurations):
                    failed.append(_none_runs(q, [o for _, o in tried[q.spec]]))
                else:
                    left.append(q)
            open_questions = left
        for question in questions:
            self._record(question, tried[question.spec])
        return chosen

    def _record(self, question: Question, pairs: Sequence[tuple[Configuration, Outcome]]) -> None:
        device = self._device()
        assert device is not None  # It has just been measured on.
        tried = [_row(question, c) | {"sec": o.sec, "error": o.error} for c, o in pairs]
        self.log.append(self._key(question.spec), device, {"tried": tried})


def judge(spec: KernelSpec, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Reject results that most of the others contradict.

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
    unit = Unit.of(question.family.render(question.spec, configuration))
    return {"configuration": configuration.as_dict(), "unit": unit.symbol}


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
