"""What one model tuned serves others: through the log, through the cache, without a GPU."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu.cases.compiling import ARCH
from collage.backends.contract import BuildContext
from collage.backends.contract.errors import ReplayMissError
from collage.backends.cutlass.families import Configuration, KernelSpec
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.question import Job
from collage.backends.cutlass.tuning import SCHEMA, Outcome, Tuner
from collage.backends.storage import TuningStore, read_findings
from tests.backends_tests.cutlass.test_sharing import transformer
from tests.backends_tests.cutlass.tuning.fake_profiler import (
    FakeProfiler,
    favour_last,
    questions_of,
    tune_with,
)

pytestmark = pytest.mark.cuda  # the log's keys hold CUTLASS's version

Chosen = dict[KernelSpec, Configuration]


def machine(folder: Path, log: Path | None = None, *, replay: bool = False) -> BuildContext:
    """A machine with a cache of its own."""
    return BuildContext(folder / "cache", folder / "work", tuning_log=log, replay=replay)


def tuned(context: BuildContext, blocks: int, hidden: int = 64) -> tuple[int, Chosen]:
    """How many jobs a GPU was given for a model, and what was chosen."""
    profiler = favour_last()
    chosen = tune_with(profiler, transformer(blocks, hidden), context)
    return len(profiler.asked), chosen


def jobs_of_a_process(cache: Path, log: Path, blocks: int, hidden: int) -> int:
    command = [sys.executable, "-m", "tests.backends_tests.cutlass.tuning.fake_profiler"]
    arguments = [str(cache), str(log), str(blocks), str(hidden)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def test_models_and_processes_share_through_the_log_alone(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    first = jobs_of_a_process(tmp_path / "a", log, 12, 64)
    # Four distinct problems in twelve blocks, of a few configurations each.
    findings = read_findings(log)
    assert len(findings) == 4
    assert first == sum(len(finding.result["tried"]) for finding in findings) >= 8
    # Another process on another machine: fewer blocks, the same problems.
    assert jobs_of_a_process(tmp_path / "b", log, 3, 64) == 0
    # Of another model's four problems none is known.
    assert jobs_of_a_process(tmp_path / "b", log, 1, 128) >= 8
    assert len(read_findings(log)) == 8


def test_models_share_through_the_cache_and_each_log_is_complete(tmp_path: Path) -> None:
    _, chosen = tuned(machine(tmp_path, tmp_path / "first.jsonl"), 2)
    jobs, again = tuned(machine(tmp_path, tmp_path / "second.jsonl"), 5)
    assert (jobs, again) == (0, chosen)
    assert tuned(machine(tmp_path), 1) == (0, chosen)
    assert len(read_findings(tmp_path / "second.jsonl")) == 4
    elsewhere = machine(tmp_path / "elsewhere", tmp_path / "second.jsonl")
    assert tuned(elsewhere, 1) == (0, chosen)


def test_concatenated_logs_know_both_models(tmp_path: Path) -> None:
    for name, hidden in (("a", 64), ("b", 128)):
        tuned(machine(tmp_path / name, tmp_path / name / "log"), 1, hidden)
    both = tmp_path / "both.jsonl"
    both.write_bytes(b"".join((tmp_path / name / "log").read_bytes() for name in "ab"))
    context = machine(tmp_path / "c", both)
    assert tuned(context, 2, 64)[0] == tuned(context, 2, 128)[0] == 0


@pytest.mark.parametrize("torn", [b'{"kind": "tuning", "backend": "cutl', b"{"])
def test_a_torn_line_loses_one_finding(torn: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    jobs, _ = tuned(machine(tmp_path / "a", log), 1)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]) + torn)
    with pytest.warns(UserWarning, match=r"log.jsonl:4: a torn line is skipped"):
        again, _ = tuned(machine(tmp_path / "b", log), 1)
    assert 0 < again < jobs
    with pytest.warns(UserWarning, match=r"log.jsonl:4: a torn line is skipped"):
        assert tuned(machine(tmp_path / "c", log), 1)[0] == 0


def test_two_at_once_measure_each_problem_once_between_them(tmp_path: Path) -> None:
    """As the processes do that compile several variants of a model at once."""
    context = machine(tmp_path, tmp_path / "log.jsonl")
    questions = questions_of(transformer(1))
    begun = threading.Barrier(2, timeout=60)
    profilers = [favour_last(), favour_last()]

    def tune(profiler: FakeProfiler) -> Chosen:
        def slow(job: Job) -> Outcome:
            time.sleep(0.1)
            return answer(job)

        answer, profiler.answer = profiler.answer, slow
        tuner = Tuner(TuningStore.of("cutlass", SCHEMA, context), profiler, CutlassOptions(), ARCH)
        begun.wait()
        return tuner.choose(questions)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(tune, profilers)
    asked = [(job.spec, job.configuration) for profiler in profilers for job in profiler.asked]
    assert len(asked) == len(set(asked)) >= 8, "each took what the other one was not at"
    assert first == second and len(read_findings(tmp_path / "log.jsonl")) == 4


def test_without_a_gpu_the_tuned_configurations_are_taken(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    guesses = tune_with(None, transformer(1), machine(tmp_path / "none", log))
    assert not log.exists(), "a guess is no finding"
    _, chosen = tuned(machine(tmp_path / "gpu", log), 1)
    assert all(chosen[spec] != guess for spec, guess in guesses.items())
    before = log.read_bytes()
    assert tune_with(None, transformer(3), machine(tmp_path / "none", log)) == chosen
    assert tune_with(None, transformer(3), machine(tmp_path / "gpu")) == chosen
    # What is not known keeps its first guess.
    wider = tune_with(None, transformer(1, 128), machine(tmp_path / "none", log))
    assert wider == tune_with(None, transformer(1, 128), machine(tmp_path / "none"))
    assert log.read_bytes() == before and not (tmp_path / "none" / "cache").exists()


def test_a_replay_times_nothing_and_takes_no_guess(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    _, chosen = tuned(machine(tmp_path / "a", log), 1)
    before = log.read_bytes()
    strict = machine(tmp_path / "b", log, replay=True)
    assert tuned(strict, 4) == (0, chosen)
    assert tune_with(None, transformer(1), strict) == chosen
    profiler = favour_last()
    for gpu in (profiler, None):
        with pytest.raises(ReplayMissError, match=r"cutlass's tuning of matmul .*\(4 such\)"):
            tune_with(gpu, transformer(1, 128), strict)
    assert profiler.asked == []
    assert log.read_bytes() == before and not strict.cache_dir.exists()
    # The cache answers a replay too.
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    here = replace(machine(tmp_path / "a", empty), replay=True)
    assert tuned(here, 1) == (0, chosen)
    assert empty.read_bytes() == b""
