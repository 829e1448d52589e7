"""A profiler that runs nothing, and a process that tunes a model with it.

    python -m tests.backends_tests.cutlass.tuning.fake_profiler CACHE LOG BLOCKS HIDDEN

Its answer, on standard output, is how many jobs the profiler was given.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from benchmarks.gpu.cases.compiling import ARCH, cuda_target
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.cutlass import codegen
from collage.backends.cutlass.families import Configuration, KernelSpec
from collage.backends.cutlass.question import Job, Question
from collage.backends.cutlass.tuning import Outcome
from tests.backends_tests.cutlass.reading import options_of, read_module
from tests.backends_tests.cutlass.test_sharing import case, transformer

SAMPLE = np.arange(8, dtype=np.float32)


@dataclass
class FakeProfiler:
    """Answers from a function of the job, and keeps what it was asked."""

    answer: Callable[[Job], Outcome]
    device: Mapping[str, Any] = field(
        default_factory=lambda: {"name": "NVIDIA Fake", "compute_capability": 90}
    )
    asked: list[Job] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome]:
        for job in jobs:
            self.asked.append(job)
            yield self.answer(job)


def favour_last() -> FakeProfiler:
    """A profiler for which each job is faster than those before it."""
    times = (1e-3 / n for n in itertools.count(1))
    return FakeProfiler(lambda _: Outcome(next(times), SAMPLE))


def tune_with(
    profiler: FakeProfiler | None, module: tvm.IRModule, context: BuildContext
) -> dict[KernelSpec, Configuration]:
    """Tune all that CUTLASS takes of a module, on a GPU that the profiler stands for."""
    given = case(module)
    target = BackendTarget("cutlass", cuda_target(), options_of(given))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codegen, "gpu_profiler", lambda *_: profiler)
        return codegen.tune(read_module(given), target, context)


def questions_of(module: tvm.IRModule) -> list[Question]:
    """What is to be chosen for a module."""
    given = case(module)
    options = options_of(given)
    return [
        Question(p.spec, p.family, tuple(p.family.configurations(p.spec, options, ARCH)))
        for p in read_module(given)
    ]


def main(cache: str, log: str, blocks: str, hidden: str) -> None:
    """Tune a transformer with a fake profiler; prints the number of its jobs."""
    profiler = favour_last()
    context = BuildContext(Path(cache), Path(cache), tuning_log=Path(log))
    tune_with(profiler, transformer(int(blocks), int(hidden)), context)
    print(len(profiler.asked))


if __name__ == "__main__":
    main(*sys.argv[1:])
