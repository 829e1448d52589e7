"""Running kernel units in processes of their own: built for real, and contained when they fail."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from benchmarks.gpu.cases import case_of
from benchmarks.gpu.cases.compiling import ARCH
from collage.backends.contract import BuildContext
from collage.backends.cutlass.families import KernelSource
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.profiler import GpuProfiler, gpu_profiler
from collage.backends.cutlass.question import Job
from collage.backends.cutlass.turns import GpuPlace
from collage.backends.cutlass.unit import Unit
from collage.backends.devices import CUDA
from collage.backends.storage import exclusive, lock_path
from collage.backends.toolchain.cuda_runtime import has_device
from collage.config import Config
from tests.backends_tests.cutlass.reading import options_of, read_case

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(900)]

CASE = case_of("cutlass", "matmul_bias_relu_add-float16-2x64x128-128x192-sm80")


def test_jobs_are_built_and_run_or_their_failure_is_told(tmp_path: Path) -> None:
    partition = read_case(CASE)
    spec, family = partition.spec, partition.family
    configuration = family.configurations(spec, options_of(CASE), ARCH)[0]
    unit = Unit.of(family.render(spec, configuration))
    good = Job(spec, configuration, unit, family.launch_sizes(spec, configuration))
    broken = Job(spec, configuration, Unit.of(KernelSource("broken", "int x = y;\n")), good.sizes)

    context = BuildContext(Config.from_environment().cache_dir, tmp_path)
    profiler = GpuProfiler("any", CutlassOptions(), context, ARCH)
    ran, refused = list(profiler.run([good, broken]))
    assert refused.sec is None
    assert refused.error.startswith("it does not compile")
    assert '"y" is undefined' in refused.error
    if has_device():
        assert ran.error == ""
        assert ran.sec is not None and 0 < ran.sec < 1e-2
        assert ran.sample is not None
        assert ran.sample.size == min(65536, math.prod(spec.output.shape))
    else:
        # The program started and came as far as the driver.
        assert ran.sec is None
        assert "it failed with exit status 2: cudaStreamCreate" in ran.error


_STAND_IN = """#!{python}
import fcntl, json, os, sys, time
import numpy as np
lock = {lock!r}

def is_held():
    with open(lock, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

print("started", flush=True)
for number, line in enumerate(sys.stdin):
    library, behaviour, sample, repetitions, sizes, scalars, tensors = line.rstrip().split("\\t")
    assert sizes == "1,2" and tensors.split(",")[-1] == "float16:24576", line
    if behaviour == "hang":
        time.sleep(1000)
    if behaviour == "talk":
        print("and now for something else", flush=True)
    if behaviour == "die" or behaviour == "die later on" and number:
        sys.exit("it dies")
    time.sleep(0.5 if number == 0 else 0.01)
    value = 7
    if behaviour == "where":
        value = int(os.environ["CUDA_VISIBLE_DEVICES"].removeprefix("GPU-"))
    np.full(4, value, np.float32).tofile(sample)
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit("nobody asked")
    if behaviour == "die timed":
        sys.exit("it dies while timed")
    print(json.dumps({{"sec": [1.0, 3.0, 2.0] if is_held() else [99.0]}}), flush=True)
time.sleep(0.5)
if is_held():
    sys.exit("the device is held by one that ends")
open(__file__ + ".ended", "a").write("x")
"""


class StandInProfiler(GpuProfiler):
    """Runs a script in place of the program, and compiles nothing."""

    script: Path

    def build(self, unit: Unit, folder: Path) -> Path | str:
        return folder

    def program(self) -> Path:
        return self.script


@pytest.fixture
def stand_in(tmp_path: Path) -> StandInProfiler:
    script = tmp_path / "program"
    script.write_text(_STAND_IN.format(python=sys.executable, lock=str(lock_path(CUDA))))
    script.chmod(0o755)
    lock_path(CUDA).touch()
    profiler = StandInProfiler("any", CutlassOptions(), BuildContext(tmp_path, tmp_path), ARCH)
    profiler.script = script
    return profiler


def jobs_that(*behaviours: str) -> list[Job]:
    """Jobs whose unit's name tells the stand-in what to do."""
    partition = read_case(CASE)
    configuration = partition.family.configurations(partition.spec, options_of(CASE), ARCH)[0]
    return [Job(partition.spec, configuration, Unit(b, ""), (1, 2)) for b in behaviours]


def test_runs_get_ready_beside_others_and_hold_the_device_only_to_be_timed(
    stand_in: StandInProfiler,
) -> None:
    with exclusive(CUDA):
        blocked = Thread(target=lambda: list(stand_in.run(jobs_that("waits"))))
        blocked.start()
        blocked.join(2)
        assert blocked.is_alive(), "it is timed while another one has the device"
    blocked.join(30)
    outcomes = list(stand_in.run(jobs_that(*(f"right {i}" for i in range(6)))))
    assert [outcome.sec for outcome in outcomes] == [2.0] * 6
    assert all(o.sample is not None and o.sample.tolist() == [7, 7, 7, 7] for o in outcomes)
    # One process for the first, and at most two for the other six.
    ended = stand_in.script.with_name("program.ended").read_text()
    assert len(ended) in (2, 3)


def test_runs_that_fail_harm_no_other(
    stand_in: StandInProfiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collage.backends.cutlass.profiler.TIME_LIMIT_SEC", 6.0)
    died, hung, talked, later, right = stand_in.run(
        jobs_that("die", "hang", "talk", "die timed", "right")
    )
    assert died.error == "it failed with exit status 1: it dies"
    assert hung.error == "it did not end within 6 s"
    assert talked.error == "it prints 'and now for something else'"
    assert later.error == "it failed with exit status 1: it dies while timed"
    assert right.sec == 2.0
    with exclusive(CUDA, lambda: pytest.fail("the device was not let go")):
        pass


def test_who_dies_after_others_is_given_a_process_of_its_own(
    stand_in: StandInProfiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collage.backends.cutlass.profiler.RUNS_AT_A_TIME", 1)
    outcomes = list(stand_in.run(jobs_that("right", "die later on", "die", "right")))
    assert [outcome.sec for outcome in outcomes] == [2.0, 2.0, None, 2.0]
    assert outcomes[2].error == "it failed with exit status 1: it dies"


def test_two_gpus_share_specs_and_each_is_compared_on_one(stand_in: StandInProfiler) -> None:
    places = [GpuPlace(n, {"CUDA_VISIBLE_DEVICES": f"GPU-{n}"}) for n in range(2)]
    profiler = StandInProfiler("any", stand_in.options, stand_in.context, ARCH, places)
    profiler.script = stand_in.script
    jobs = [
        replace(job, spec=replace(job.spec, scalars=(float(spec),)))
        for spec in range(4)
        for job in jobs_that("where", "where", "where")
    ]
    samples = [outcome.sample for outcome in profiler.run(jobs)]
    used = [int(sample[0]) for sample in samples if sample is not None]
    assert len(used) == 12 and set(used) == {0, 1}
    assert all(len(set(used[first : first + 3])) == 1 for first in range(0, 12, 3))


def test_a_gpu_of_another_architecture_is_not_measured_on(tmp_path: Path) -> None:
    context = BuildContext(tmp_path, tmp_path)
    assert gpu_profiler(CutlassOptions(), context, "sm_52") is None
