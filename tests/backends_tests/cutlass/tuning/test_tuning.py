"""Choosing configurations: what is measured, remembered, shared, and believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import CodegenError
from collage.backends.cutlass import tuning, unit
from collage.backends.cutlass.families import Configuration, KernelSpec
from collage.backends.cutlass.families.gemm.configurations import (
    GemmConfiguration,
)
from collage.backends.cutlass.families.gemm.family import family, spec_of
from collage.backends.cutlass.families.gemm.patterns import Form
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.question import Job, Question
from collage.backends.cutlass.trials import GUESSES_IN_A_HURRY
from collage.backends.cutlass.tuning import SCHEMA, Outcome, Tuner, judge
from collage.backends.storage import TuningStore
from tests.backends_tests.cutlass.reading import problem
from tests.backends_tests.cutlass.tuning.fake_profiler import SAMPLE, FakeProfiler

pytestmark = pytest.mark.cuda  # the log's keys hold CUTLASS's version

ARCH = "sm_90a"
LENGTHS = (1, 16, 100, 128, 400, 1024, 2048, 3152, 8192)


def question(
    m: int, n: int, k: int, form: Form | None = None, options: CutlassOptions | None = None
) -> Question:
    options = options or CutlassOptions()
    spec = spec_of(problem(m, n, k), form or Form(), options)
    return Question(spec, family(), tuple(family().configurations(spec, options, ARCH)))


def favour(best: Configuration) -> Callable[[Job], Outcome]:
    """One microsecond for the given configuration, two for all others."""
    return lambda job: Outcome(1e-6 if job.configuration == best else 2e-6, SAMPLE)


def tuner(
    path: Path,
    profiler: FakeProfiler | None,
    *,
    hurried: bool = False,
    replay: bool = False,
    **options: Any,
) -> Tuner:
    log = TuningStore("cutlass", SCHEMA, path, replay=replay)
    return Tuner(log, profiler, CutlassOptions(**options), ARCH, hurried=hurried)


def test_without_a_gpu_the_first_guess_is_taken(tmp_path: Path) -> None:
    asked = question(128, 768, 768)
    chosen = tuner(tmp_path / "log", None).choose([asked])
    assert chosen == {asked.spec: asked.configurations[0]}
    assert not (tmp_path / "log").exists()


def test_fastest_is_chosen_and_remembered(tmp_path: Path) -> None:
    asked = question(128, 768, 768)
    best = asked.configurations[3]
    first = FakeProfiler(favour(best))
    assert tuner(tmp_path / "log", first).choose([asked]) == {asked.spec: best}
    assert [job.configuration for job in first.asked] == list(asked.configurations)

    second = FakeProfiler(favour(asked.configurations[0]))
    assert tuner(tmp_path / "log", second).choose([asked]) == {asked.spec: best}
    assert second.asked == []


def test_equal_problems_are_measured_once(tmp_path: Path) -> None:
    blocks = [question(128, 768, 768), question(128, 3072, 768)] * 12
    profiler = FakeProfiler(favour(blocks[0].configurations[1]))
    chosen = tuner(tmp_path / "log", profiler).choose(blocks)
    assert len(chosen) == 2
    assert len(profiler.asked) == sum(len(q.configurations) for q in blocks[:2])
    assert len((tmp_path / "log").read_text().splitlines()) == 2


def test_the_only_configuration_needs_no_measurement(tmp_path: Path) -> None:
    asked = question(128, 768, 768)
    only = replace(asked, configurations=asked.configurations[2:3])
    profiler = FakeProfiler(favour(asked.configurations[0]))
    assert tuner(tmp_path / "log", profiler).choose([only]) == {asked.spec: asked.configurations[2]}
    assert profiler.asked == []


@pytest.mark.parametrize(
    "change",
    ["device", "cutlass", "nvcc", "kernel", "fast_math", "epilogue", "shape"],
)
def test_any_other_condition_is_a_miss(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = question(128, 768, 768)
    tuner(tmp_path / "log", FakeProfiler(favour(asked.configurations[1]))).choose([asked])
    later = FakeProfiler(favour(asked.configurations[2]))
    options = {}
    if change == "device":
        later.device = {**later.device, "name": "NVIDIA Other"}
    elif change == "cutlass":
        monkeypatch.setattr(tuning, "cutlass_version", lambda: "9.9.9")
    elif change == "nvcc":
        newer = replace(tuning.find_toolkit(), version="99.0.0")
        monkeypatch.setattr(tuning, "find_toolkit", lambda: newer)
    elif change == "kernel":
        monkeypatch.setattr(unit, "included_headers", lambda text: [Path(__file__)])
    elif change == "fast_math":
        options = {"use_fast_math": True}
    elif change == "epilogue":
        asked = question(128, 768, 768, Form(bias=True))
    else:
        asked = question(129, 768, 768)
    tuner(tmp_path / "log", later, **options).choose([asked])
    assert len(later.asked) == len(asked.configurations)


def test_a_wider_question_is_measured_and_a_narrower_one_is_not(tmp_path: Path) -> None:
    asked = question(16, 768, 3072)
    narrow = replace(asked, configurations=asked.configurations[1:3])
    slowest = asked.configurations[2]
    profiler = FakeProfiler(lambda job: Outcome(2e-6 if job.configuration == slowest else 1e-6))
    tuner(tmp_path / "log", profiler).choose([asked])
    profiler.asked.clear()
    assert tuner(tmp_path / "log", profiler).choose([narrow])[asked.spec] != slowest
    assert profiler.asked == []
    wide = replace(asked, configurations=(*asked.configurations, _other(asked)))
    tuner(tmp_path / "log", profiler).choose([wide])
    assert len(profiler.asked) == len(wide.configurations)


def _other(asked: Question) -> GemmConfiguration:
    configuration = asked.configurations[0]
    assert isinstance(configuration, GemmConfiguration)
    return replace(configuration, slices=63)


def test_first_valid_stops_at_the_first_that_runs(tmp_path: Path) -> None:
    asked, other = question(128, 768, 768), question(128, 3072, 768)
    broken = asked.configurations[0]

    def answer(job: Job) -> Outcome:
        failed = job.spec == asked.spec and job.configuration == broken
        return Outcome(error="it does not compile") if failed else Outcome(1e-6, SAMPLE)

    profiler = FakeProfiler(answer)
    finder = tuner(tmp_path / "log", profiler, find_first_valid=True)
    chosen = finder.choose([asked, other])
    assert chosen == {
        asked.spec: asked.configurations[1],
        other.spec: other.configurations[0],
    }
    assert len(profiler.asked) == 3
    assert finder.choose([asked, other]) == chosen
    assert len(profiler.asked) == 3


def test_in_a_hurry_few_are_tried_and_the_faster_is_taken(tmp_path: Path) -> None:
    asked = question(128, 770, 768)  # Rows that only kernels that compile slowly take.
    best = asked.configurations[1]
    profiler = FakeProfiler(favour(best))
    hurried = tuner(tmp_path / "log", profiler, hurried=True)
    assert hurried.choose([asked]) == {asked.spec: best}
    assert [job.configuration for job in profiler.asked] == list(asked.configurations[:2])
    assert hurried.choose([asked]) == {asked.spec: best}
    assert len(profiler.asked) == GUESSES_IN_A_HURRY

    assert tuner(tmp_path / "log", profiler, replay=True).choose([asked]) == {asked.spec: best}
    assert len(profiler.asked) == GUESSES_IN_A_HURRY

    patient = FakeProfiler(favour(asked.configurations[3]))
    found = tuner(tmp_path / "log", patient).choose([asked])
    assert found == {asked.spec: asked.configurations[3]}
    assert len(patient.asked) == len(asked.configurations)
    # What is known is used, however much time there was to find it out.
    assert tuner(tmp_path / "log", profiler, hurried=True).choose([asked]) == found
    assert len(profiler.asked) == GUESSES_IN_A_HURRY


def test_in_a_hurry_more_are_tried_where_none_runs(tmp_path: Path) -> None:
    asked = question(128, 770, 768)  # Rows that only kernels that compile slowly take.
    broken = asked.configurations[:GUESSES_IN_A_HURRY]
    profiler = FakeProfiler(
        lambda job: Outcome(error="misaligned") if job.configuration in broken else Outcome(1e-6)
    )
    chosen = tuner(tmp_path / "log", profiler, hurried=True).choose([asked])
    assert chosen == {asked.spec: asked.configurations[GUESSES_IN_A_HURRY]}
    tried = [job.configuration for job in profiler.asked]
    assert tried == list(asked.configurations[: 2 * GUESSES_IN_A_HURRY])


def test_what_was_left_out_as_lonely_is_not_measured_later(tmp_path: Path) -> None:
    asked = [question(m, 768, 768) for m in LENGTHS]
    profiler = FakeProfiler(lambda job: Outcome(1e-6, SAMPLE))
    chosen = tuner(tmp_path / "log", profiler).choose(asked)
    tried = dict.fromkeys(asked, 0)
    for job in profiler.asked:
        tried[next(q for q in asked if q.spec == job.spec)] += 1
    lonely = [q for q, count in tried.items() if count < len(q.configurations)]
    assert lonely
    again = FakeProfiler(favour(lonely[0].configurations[-1]))
    assert tuner(tmp_path / "log", again).choose(lonely[:1]) == {
        lonely[0].spec: chosen[lonely[0].spec]
    }
    assert again.asked == []


def test_failures_are_recorded_and_none_left_is_an_error(tmp_path: Path) -> None:
    asked = question(128, 768, 768)
    profiler = FakeProfiler(lambda job: Outcome(error="exit status 2: misaligned address"))
    for options in ({}, {"find_first_valid": True}):
        with pytest.raises(CodegenError, match="misaligned address"):
            tuner(tmp_path / "log", profiler, **options).choose([asked])
    first = (tmp_path / "log").read_text().splitlines()[0]
    tried = json.loads(first)["result"]["tried"]
    assert {row["error"] for row in tried} == {"exit status 2: misaligned address"}
    assert {row["sec"] for row in tried} == {None}


@pytest.mark.parametrize("find_first_valid", [False, True])
def test_a_problem_that_nothing_runs_costs_no_other_its_choice(
    tmp_path: Path, find_first_valid: bool
) -> None:
    bad, good = question(128, 768, 768), question(128, 3072, 768)

    def answer(job: Job) -> Outcome:
        return Outcome(error="misaligned") if job.spec == bad.spec else Outcome(1e-6, SAMPLE)

    with pytest.raises(CodegenError, match="misaligned"):
        tuner(tmp_path / "log", FakeProfiler(answer), find_first_valid=find_first_valid).choose(
            [bad, good]
        )
    again = FakeProfiler(answer)
    assert set(
        tuner(tmp_path / "log", again, find_first_valid=find_first_valid).choose([good])
    ) == {good.spec}
    assert again.asked == []


def test_choices_are_kept_as_they_are_made(tmp_path: Path) -> None:
    first, second = question(128, 768, 768), question(128, 3072, 768)

    def answer(job: Job) -> Outcome:
        if job.spec == second.spec:
            raise KeyboardInterrupt
        return Outcome(1e-6, SAMPLE)

    with pytest.raises(KeyboardInterrupt):
        tuner(tmp_path / "log", FakeProfiler(answer)).choose([first, second])
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_who_has_few_to_choose_from_is_first(tmp_path: Path) -> None:
    many, few = question(128, 768, 768), question(128, 3072, 768)
    few = replace(few, configurations=few.configurations[:2])
    settled: list[KernelSpec] = []
    profiler = FakeProfiler(lambda job: Outcome(1e-6, SAMPLE))
    chosen = tuner(tmp_path / "log", profiler).choose([many, few], settled.append)
    assert settled == [few.spec, many.spec]
    assert [job.spec for job in profiler.asked] == [few.spec] * 2 + [many.spec] * len(
        many.configurations
    )
    assert chosen == {one.spec: one.configurations[0] for one in (many, few)}


def test_what_another_process_is_tuning_comes_last_and_is_not_measured_again(
    tmp_path: Path,
) -> None:
    shared, own = question(128, 768, 768), question(128, 3072, 768)
    other = tuner(tmp_path / "log", FakeProfiler(favour(shared.configurations[1])))
    ours = FakeProfiler(favour(shared.configurations[2]))
    begun, go_on = Event(), Event()

    def tune_shared() -> None:
        with other.store.claim([other.key(shared)]):
            begun.set()
            assert go_on.wait(30)
            other.measure([shared], {})

    thread = Thread(target=tune_shared)
    thread.start()
    assert begun.wait(30)

    def answer(job: Job) -> Outcome:
        go_on.set()
        return favour(shared.configurations[2])(job)

    ours.answer = answer
    chosen = tuner(tmp_path / "log", ours).choose([shared, own])
    thread.join()
    assert chosen[shared.spec] == shared.configurations[1], "what the other one found"
    assert {job.spec for job in ours.asked} == {own.spec}


def test_wrong_results_are_never_chosen(tmp_path: Path) -> None:
    asked = question(128, 768, 768)
    wrong, empty = asked.configurations[0], asked.configurations[1]

    def answer(job: Job) -> Outcome:
        if job.configuration == wrong:
            return Outcome(1e-9, SAMPLE + 1)
        if job.configuration == empty:
            return Outcome(1e-9, np.full_like(SAMPLE, np.nan))
        return Outcome(1e-6, SAMPLE)

    chosen = tuner(tmp_path / "log", FakeProfiler(answer)).choose([asked])
    assert chosen[asked.spec] not in (wrong, empty)
    rows = json.loads((tmp_path / "log").read_text())["result"]["tried"]
    assert "differs from that of most" in rows[0]["error"]
    assert "non-numbers" in rows[1]["error"]


def test_rounding_is_no_contradiction() -> None:
    spec = question(128, 768, 768).spec
    outcomes = [Outcome(1e-6, SAMPLE), Outcome(1e-6, SAMPLE * np.float32(1.002))]
    assert [o.error for o in judge(spec, outcomes)] == ["", ""]


def test_torn_line_is_skipped_and_the_next_record_kept(tmp_path: Path) -> None:
    asked = question(128, 768, 768)
    path = tmp_path / "log"
    path.write_text('{"schema": 1, "key"')
    best = asked.configurations[2]
    with pytest.warns(UserWarning, match=r"log:1: a torn line is skipped"):
        tuner(path, FakeProfiler(favour(best))).choose([asked])
    again = FakeProfiler(favour(asked.configurations[0]))
    with pytest.warns(UserWarning, match="torn line"):
        assert tuner(path, again).choose([asked]) == {asked.spec: best}
    assert again.asked == []


# What the heuristic proposes.
