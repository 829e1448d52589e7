"""Times several engines on one model in turns, and keeps going when one fails."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from benchmarks.engines import REFERENCE, Job
from benchmarks.engines.base import Array, EngineMissingError
from benchmarks.timing.processes import EngineError, EngineProcess, Turn
from benchmarks.timing.statistics import max_relative_difference

WRONG_DIFFERENCE = 1e-2
"""Above this an engine did not compute the model: far from rounding, and its time means nothing."""


@dataclass
class EngineResult:
    """What one engine did on one model.

    Attributes
    ----------
    round_sec : list of float
        Median seconds per call of each round.
    figures : dict
        What preparing reported (``search_sec`` ...), and ``load_sec``.
    max_rel_diff : float or None
        Largest output difference to the reference engine's.
    failure : str
        Why there are no times; empty when there are.
    missing : bool
        The engine is not installed, which is no failure.
    """

    engine: str
    round_sec: list[float] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    max_rel_diff: float | None = None
    failure: str = ""
    missing: bool = False


@dataclass(frozen=True)
class Plan:
    """How a model is measured.

    Attributes
    ----------
    rounds : int
        In each round every engine has one turn, in a random order.
    prepare_limit_sec, load_limit_sec : float
        After which an engine counts as failed.
    seed : int
        Of the inputs and of the order of turns.
    """

    rounds: int = 12
    turn: Turn = field(default_factory=Turn)
    prepare_limit_sec: float = 1800.0
    load_limit_sec: float = 600.0
    seed: int = 0


Progress = Callable[[str], None]
"""Told before each step what is done next."""


def measure(
    job: Job, engines: Sequence[str], plan: Plan, progress: Progress = lambda _: None
) -> list[EngineResult]:
    """Prepare, load and time these engines on one model.

    Parameters
    ----------
    job : Job
        The model, a folder to build in, the number of threads.
    engines : sequence of str
        Names from ``benchmarks.engines.ENGINES``, in the order in which they are prepared.
    plan : Plan
    progress : callable

    Returns
    -------
    list of EngineResult
        One per engine, failed ones included.
    """
    results = [EngineResult(engine) for engine in engines]
    for result in results:
        progress(f"{result.engine}: prepare")
        _guard(result, partial(_prepare, result, job, plan))
    running: dict[str, EngineProcess] = {}
    outputs: dict[str, list[Array]] = {}
    with ExitStack() as stack:
        for result in results:
            progress(f"{result.engine}: load")
            if not result.failure:
                process = stack.enter_context(EngineProcess(result.engine, job))
                running[result.engine] = process
                _guard(result, partial(_load, result, process, outputs, plan), process)
        _compare(results, outputs)
        _run_rounds(results, running, plan, progress)
    return results


def steps(engines: int, plan: Plan) -> int:
    """How often :func:`measure` calls its progress function."""
    return engines * (2 + plan.rounds)


def _guard(
    result: EngineResult, step: Callable[[], None], process: EngineProcess | None = None
) -> None:
    """Run a step; a failure becomes the row's text, and ends the engine's process."""
    try:
        step()
    except EngineMissingError as err:
        result.failure, result.missing = str(err), True
    except (EngineError, ValueError) as err:
        result.failure = str(err)
    if result.failure and process:
        process.close()  # it would disturb the others


def _prepare(result: EngineResult, job: Job, plan: Plan) -> None:
    """In a process that ends afterwards, so that the timed one starts clean."""
    with EngineProcess(result.engine, job) as process:
        result.versions = process.versions()
        result.figures.update(process.prepare(plan.prepare_limit_sec))


def _load(
    result: EngineResult, process: EngineProcess, outputs: dict[str, list[Array]], plan: Plan
) -> None:
    result.figures["load_sec"] = process.load(plan.seed, plan.load_limit_sec)
    outputs[result.engine] = process.outputs()
    process.suspend()


def _compare(results: Sequence[EngineResult], outputs: Mapping[str, list[Array]]) -> None:
    """Fill in the output differences, where the reference engine ran."""
    if REFERENCE not in outputs:
        return
    for result in results:
        if result.engine in outputs:
            _guard(result, partial(_compare_one, result, outputs))


def _compare_one(result: EngineResult, outputs: Mapping[str, list[Array]]) -> None:
    difference = max_relative_difference(outputs[result.engine], outputs[REFERENCE])
    result.max_rel_diff = difference
    if difference > WRONG_DIFFERENCE:
        raise ValueError(f"wrong output: differs by {difference:.1e} of the largest value")


def _run_rounds(
    results: Sequence[EngineResult],
    running: Mapping[str, EngineProcess],
    plan: Plan,
    progress: Progress,
) -> None:
    order = random.Random(plan.seed)
    for number in range(plan.rounds):
        for result in order.sample(list(results), len(results)):
            progress(f"{result.engine}: round {number + 1} of {plan.rounds}")
            if not result.failure:
                process = running[result.engine]
                _guard(result, partial(_take_turn, result, process, plan), process)


def _take_turn(result: EngineResult, process: EngineProcess, plan: Plan) -> None:
    process.resume()
    result.round_sec.append(statistics.median(process.time(plan.turn)))
    process.suspend()
