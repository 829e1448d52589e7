"""Which configuration runs a spec: remembered, measured, or the heuristic's first guess.

Everything that a choice depends on is part of a record's key; the record holds the time of every
configuration that was tried, so that a later, narrower question is answered from it as well.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collage.backends.cuda_toolkit import find_toolkit
from collage.backends.cutlass.family import Configuration, KernelSpec, OperatorFamily
from collage.backends.cutlass.library import cutlass_version
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.unit import Unit
from collage.backends.errors import CodegenError

SCHEMA = 1
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

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Build all jobs' units in parallel, then run them one by one on equal random data."""


class TuningLog:
    """The file of results: JSON Lines, append-only, shared by all processes of a machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, list[dict[str, Any]]]:
        """Tried configurations by :func:`record_key`; of equal keys the last record counts."""
        found = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                warnings.warn(f"{self.path}:{number}: a torn line is skipped", stacklevel=2)
                continue
            if record.get("schema") == SCHEMA:
                found[record_key(record["key"])] = record["tried"]
        return found

    def append(self, key: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> None:
        """Add one spec's results, on a line of their own even after a torn one."""
        record = {"schema": SCHEMA, "key": dict(key), "tried": list(tried)}
        text = json.dumps(record, sort_keys=True) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell() > 0:
                file.seek(-1, 2)
                text = text if file.read(1) == b"\n" else "\n" + text
            file.write(text.encode())


def record_key(key: Mapping[str, Any]) -> str:
    """A key as canonical text."""
    return json.dumps(key, sort_keys=True)


class Tuner:
    """Chooses configurations, with a log and, where there is a device, a profiler."""

    def __init__(
        self, log: TuningLog, profiler: Profiler | None, options: CutlassOptions, arch: str
    ) -> None:
        self.log, self.profiler, self.options, self.arch = log, profiler, options, arch

    def choose(self, questions: Sequence[Question]) -> dict[KernelSpec, Configuration]:
        """A configuration for every spec; each distinct spec is measured once.

        Raises
        ------
        CodegenError
            When none of a spec's configurations runs on the device.
        """
        distinct = {question.spec: question for question in questions}
        if self.profiler is None:
            return {spec: question.configurations[0] for spec, question in distinct.items()}
        known = self.log.read()
        chosen: dict[KernelSpec, Configuration] = {}
        unknown = []
        for question in distinct.values():
            if len(question.configurations) == 1:
                chosen[question.spec] = question.configurations[0]
                continue
            tried = known.get(record_key(self._key(question.spec, self.profiler)))
            answer = None if tried is None else self._remembered(question, tried)
            if answer is None:
                unknown.append(question)
            else:
                chosen[question.spec] = answer
        if self.options.find_first_valid:
            return chosen | self._first_valid(unknown, self.profiler)
        return chosen | self._measured(unknown, self.profiler)

    def _key(self, spec: KernelSpec, profiler: Profiler) -> dict[str, Any]:
        return {
            "spec": spec.key(),
            "device": profiler.device,
            "arch": self.arch,
            "cutlass": cutlass_version(),
            "nvcc": find_toolkit().version,
            "fast_math": self.options.use_fast_math,
        }

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
        self, questions: Sequence[Question], profiler: Profiler
    ) -> dict[KernelSpec, Configuration]:
        jobs = [Job.of(q, c) for q in questions for c in q.configurations]
        outcomes = iter(profiler.run(jobs) if jobs else [])
        chosen = {}
        for question in questions:
            own = judge(question.spec, [next(outcomes) for _ in question.configurations])
            pairs = list(zip(question.configurations, own, strict=True))
            self._record(question, profiler, pairs)
            valid = [(c, o.sec) for c, o in pairs if o.sec is not None]
            if not valid:
                raise _none_runs(question, own)
            chosen[question.spec] = min(valid, key=lambda pair: pair[1])[0]
        return chosen

    def _first_valid(
        self, questions: Sequence[Question], profiler: Profiler
    ) -> dict[KernelSpec, Configuration]:
        """In rounds: every open question's next configuration, all built in parallel."""
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
                    raise _none_runs(q, [o for _, o in tried[q.spec]])
                else:
                    left.append(q)
            open_questions = left
        for question in questions:
            self._record(question, profiler, tried[question.spec])
        return chosen

    def _record(
        self,
        question: Question,
        profiler: Profiler,
        pairs: Sequence[tuple[Configuration, Outcome]],
    ) -> None:
        tried = [_row(question, c) | {"sec": o.sec, "error": o.error} for c, o in pairs]
        self.log.append(self._key(question.spec, profiler), tried)


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


def _none_runs(question: Question, outcomes: Sequence[Outcome]) -> CodegenError:
    spec = question.spec
    errors = "; ".join(sorted({outcome.error for outcome in outcomes}))
    return CodegenError(
        f"no configuration of {spec.operator} {spec.sizes} ({spec.dtype}, {spec.epilogue}) runs: "
        f"{errors}",
        value=spec.sizes,
    )
