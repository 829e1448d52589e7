"""Libraries that are timed in the same rounds, in one process or one run at a time."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from tvm.relax import op
from tvm.target import Target

from collage.backends.contract import BackendTarget, BuildContext
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.contest import ExchangeRounds
from collage.cost.database.record import PARTITION, RecordKey
from collage.cost.measure import BuildJob, LocalBuilder, LocalRunner, RunJob, Runner, RunResult
from collage.cost.measure.interleaved.shelf import Shelf
from collage.cost.reference import Sample
from collage.cost.workload.workload import Workload
from collage.testing import graph
from tests.object_cache import cache_with_objects

QUICK = replace(MeasureConfig(), min_repeat_sec=0.002, warmup_sec=0.001, timing_budget_sec=0.02)
ROUNDS = ExchangeRounds((), most=3, fewest=3)


class OneByOne(Runner):
    """Leaves it to the base class how several are timed together."""

    def __init__(self, runner: Runner) -> None:
        self.runs = 0
        self._runner = runner

    def run(self, job: RunJob) -> RunResult:
        self.runs += 1
        return self._runner.run(job)

    def close(self) -> None:
        self._runner.close()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[RunJob]:
    folder = tmp_path_factory.mktemp("together")
    context = BuildContext(cache_with_objects(folder), folder / "work", num_threads=1)
    target = BackendTarget.of("tvm", Target("llvm"))
    relu, tanh = (
        Workload.from_module(graph([(size, 64)], lambda _, x: op.nn.relu(x))) for size in (8, 4096)
    )
    builds = [BuildJob(one, target, folder / str(n)) for n, one in enumerate((relu, tanh))]
    with LocalBuilder(context, QUICK, parallel=1) as builder:
        results = builder.build(builds)
    assert [result.status for result in results] == [CostStatus.VALID] * 2
    return [RunJob.in_folder(job.folder) for job in builds]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_all_play_each_round(jobs: list[RunJob], one_by_one: bool) -> None:
    with LocalRunner(QUICK) as local:
        runner = OneByOne(local) if one_by_one else local
        together = runner.play(jobs, ROUNDS, "seed", nullcontext)
        assert together.failures == (None, None)
        small, large = together.played.table
        # Rounds in which the machine was disturbed are played again.
        assert len(small) == len(large) >= 3
        assert min(sec for sec in small if sec) < min(sec for sec in large if sec)
        # What stays loaded must not be in the way of what is run alone afterwards.
        assert local.run(jobs[0]).cost.is_valid


@pytest.mark.parametrize("one_by_one", [False, True])
def test_one_that_computes_a_wrong_result_is_out_and_hurts_no_other(
    jobs: list[RunJob], one_by_one: bool, tmp_path: Path
) -> None:
    sample = Sample.load(jobs[0].sample)
    Sample.of(list(sample.inputs), [out + 1.0 for out in sample.expected]).save(tmp_path / "wrong")
    wrong = RunJob(jobs[0].library, tmp_path / "wrong")
    with LocalRunner(QUICK) as local:
        runner = OneByOne(local) if one_by_one else local
        together = runner.play([wrong, jobs[1]], ROUNDS, "seed", nullcontext)
    assert together.failures[0] is not None
    assert together.failures[0].status is CostStatus.WRONG_RESULT
    assert together.failures[1] is None
    assert all(sec is not None for sec in together.played.table[1])


def test_a_shelf_holds_no_more_than_it_may(tmp_path: Path) -> None:
    facts = ("8x8:float32", '{"backend": "tvm"}', (), "g++ 12.2", "0.22", "Some CPU")
    shelf = Shelf(lambda: tmp_path / "scratch", most_bytes=2500)
    keys = []
    for number in range(4):
        folder = tmp_path / f"built-{number}"
        folder.mkdir()
        (folder / "model.so").write_bytes(bytes(3000 if number == 3 else 1000))
        key = RecordKey(PARTITION, str(number), *facts, "none", 4, "{}")
        (tmp_path / "scratch").mkdir(exist_ok=True)
        shelf.keep(key, folder)
        keys.append(key)
    assert [shelf.find(key) is not None for key in keys] == [False, True, True, False]
    shelf.clear()
    assert not list((tmp_path / "scratch" / "shelf").iterdir())
