"""Which of cublasLt's algorithms runs a product: remembered, or timed where a GPU is here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collage.backends.contract import BuildContext, LibraryRequirement
from collage.backends.contract.errors import CodegenError
from collage.backends.cublas.problem import Problem
from collage.backends.cublas.timer import Choice, Device, Timer, timer_library
from collage.backends.storage import TuningRecord, TuningStage, TuningStore
from collage.backends.storage.tuning_stage import nobody_builds
from collage.backends.toolchain.cuda_runtime import device_name
from collage.backends.toolchain.cuda_toolkit import cudart

SCHEMA = 1
"""Of this backend's records in the tuning store."""


def choose(
    problems: Sequence[Problem],
    arch: str,
    library: LibraryRequirement,
    include: Path,
    context: BuildContext,
    settled: Callable[[Problem], None] = nobody_builds,
) -> dict[Problem, Choice]:
    """The algorithms of the given products: remembered, or timed.

    Where no GPU of that architecture is there, those remembered of the one that was timed on last;
    products that nobody has timed have none.

    Parameters
    ----------
    problems : sequence of Problem
        They may repeat.
    arch : str
        For example ``sm_90a``.
    library, include, context
        As :func:`~collage.backends.cublas.codegen.compile_functions` takes them.
    settled : callable, optional
        Told of each product as soon as its algorithm is known.

    Returns
    -------
    dict[Problem, Choice]
        By product, those that have an answer.

    Raises
    ------
    CodegenError
        When cublasLt has no algorithm for a product, or timing fails; all others have theirs then.
    ReplayMissError
        In a replay, when a product's is not remembered.
    """
    store = TuningStore.of("cublas", SCHEMA, context)
    name = device_name(arch, context)
    if name is None:
        return Tuner(store, arch, version_number(library.version), None).answers(problems, settled)
    timer = Timer(timer_library([library, cudart()], include, context), name)
    return Tuner(store, arch, timer.version, timer).answers(problems, settled)


def version_number(version: str) -> int:
    """cublasLt's version as ``cublasLtGetVersion`` has it: 131000 of 13.10.0."""
    major, minor, patch = map(int, version.split("."))
    return 10000 * major + 100 * minor + patch


class Tuner(TuningStage[Problem, Choice]):
    """Chooses algorithms.

    Parameters
    ----------
    store : TuningStore
        What was found before, and where findings go.
    arch : str
        For example ``sm_90a``.
    version : int
        cublasLt's, as ``cublasLtGetVersion`` has it.
    timer : Timer or None
        None where no GPU of the architecture is here.
    """

    def __init__(self, store: TuningStore, arch: str, version: int, timer: Timer | None) -> None:
        super().__init__(store, arch, None if timer is None else asdict(timer.device))
        self._version, self._timer = version, timer

    def key(self, question: Problem) -> dict[str, Any]:
        return choice_key(question, self._version)

    def describe(self, question: Problem) -> str:
        return question.describe()

    def read(self, question: Problem, record: TuningRecord) -> Choice:
        return read_choice(record)

    def measure(
        self, questions: Sequence[Problem], failed: dict[Problem, CodegenError]
    ) -> dict[Problem, Choice]:
        assert self._timer is not None
        chosen = {}
        for problem in questions:
            try:
                chosen[problem] = self._timer.measure(problem)
            except CodegenError as err:
                failed[problem] = err
            else:
                self.record(problem, choice_result(chosen[problem]))
        return chosen


def choice_key(problem: Problem, version: int) -> dict[str, Any]:
    """What a choice answers, as the log has it.

    Parameters
    ----------
    problem : Problem
        The product.
    version : int
        cublasLt's.

    Returns
    -------
    dict[str, Any]
        Plain values, as JSON has them.
    """
    return {"problem": problem.fields(), "cublasLt": version}


def choice_result(choice: Choice) -> dict[str, Any]:
    """A choice as the log has it, besides what it answers and what it was timed on."""
    return {
        # As text: JSON readers that know doubles only would round them.
        "algorithm": [f"0x{word:016x}" for word in choice.algorithm],
        "workspace_bytes": choice.workspace_bytes,
        "time_sec": choice.time_sec,
        "first_time_sec": choice.first_time_sec,
        "measured": choice.measured,
    }


def read_choice(record: TuningRecord) -> Choice:
    """The choice that a record of the log holds."""
    words = tuple(int(word, 16) for word in record.result["algorithm"])
    return Choice(
        device=Device(**record.device),
        version=record.key["cublasLt"],
        **{**record.result, "algorithm": words},
    )
