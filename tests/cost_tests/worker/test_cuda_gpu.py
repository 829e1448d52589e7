"""Measuring on a real GPU: the runner's contract, lost contexts, and what the times say.

All but the first need one; ``pytest -m gpu tests/cost_tests`` on a machine that has it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import backend_names, get_backend, register_backend
from collage.backends.toolchain.cuda_runtime import has_device
from collage.cost.base import CostStatus
from collage.cost.config import CudaConfig, MeasureConfig
from collage.cost.database import JsonLinesDatabase
from collage.cost.device import CUDA_POLICY
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.runner import RunJob, Runner
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.processes.staging import stage_to_measure
from collage.cost.worker.build import test_data as make_test_data
from collage.cost.worker.cuda.session import CudaSession
from collage.cost.worker.cuda.timers import PycudaTimer, TvmTimer, make_current
from collage.cost.workload.workload import Workload
from collage.testing.fixtures.leftovers import workers
from collage.testing.runner_contract import RunnerContract
from tests.cost_tests.support import external_partition, tensor
from tests.cost_tests.toy_cuda_backend import ToyCudaBackend

gpu = pytest.mark.gpu
needs_gpu = pytest.mark.skipif(not has_device(), reason="there is no CUDA device")

Library = Callable[[str], RunJob]


@pytest.fixture(autouse=True)
def default_stream() -> Iterator[None]:
    """A session's stream goes with it, but would stay TVM's current one in this process."""
    yield
    if has_device():
        make_current(tvm.cuda(0), 0)


def toy_cuda_target(behaviour: str = "right") -> BackendTarget:
    if "toy_cuda" not in backend_names():
        register_backend(ToyCudaBackend())
    options = get_backend("toy_cuda").parse_options({"behaviour": behaviour})
    arch = "sm_90a"
    if has_device():
        arch = "sm_" + str(tvm.cuda(0).compute_version).replace(".", "")
    limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}
    device = tvm.target.Target({"kind": "cuda", "arch": arch, **limits})
    return BackendTarget("toy_cuda", device, options)


def workload_of(*shape: int) -> Workload:
    module = external_partition(
        "toy_cuda", [tensor("x", *shape)], relax.op.nn.relu, "toy_cuda.relu"
    )
    return Workload.from_module(module)


def build(context: BuildContext, folder: Path, behaviour: str, *shape: int) -> RunJob:
    workload = workload_of(*shape)
    mod = workload.materialize()
    place = folder / "model.so"
    stage_to_measure(compile_module(mod, [toy_cuda_target(behaviour)], place, context))
    make_test_data(workload, mod, 0).save(folder)
    return RunJob.in_folder(folder)


@pytest.mark.cuda
def test_the_toy_kernels_compile_without_a_gpu(context: BuildContext, tmp_path: Path) -> None:
    """What the tests below run on a GPU is right as far as a compiler can tell."""
    job = build(context, tmp_path / "job", "fault", 4, 1000)
    data = job.library.read_bytes()
    assert b"fault_kernel" in data and b"sm_9" in data
    assert (tmp_path / "job" / "requirements.json").exists(), (
        "the CUDA runtime has to be loaded first"
    )


@gpu
@needs_gpu
class TestCudaRunner(RunnerContract):
    """The contract, but for limits on address space, which CUDA does not allow."""

    limits_address_space = False

    @pytest.fixture(scope="class")
    @classmethod
    def shared_runner(cls) -> Iterator[LocalRunner]:
        config = MeasureConfig(
            memory_limit_bytes=1 << 30,
            cuda=CudaConfig(repeat=20, min_repeat=5, run_timeout_sec=8.0),
        )
        with LocalRunner(config, policy=CUDA_POLICY) as runner:
            yield runner

    @pytest.fixture
    def runner(self, shared_runner: LocalRunner) -> LocalRunner:
        return shared_runner

    @pytest.fixture
    def library(self, context: BuildContext, tmp_path: Path) -> Library:
        return lambda behaviour: build(context, tmp_path / behaviour, behaviour, 4, 1000)

    @pytest.mark.parametrize(
        ("behaviour", "status", "words"),
        [
            ("fault", CostStatus.CRASHED, "CUDA_ERROR_ILLEGAL_ADDRESS"),
            ("trap", CostStatus.CRASHED, "broke the CUDA context"),
            ("device hang", CostStatus.TIMED_OUT, "no answer within"),
            ("device memory", CostStatus.OUT_OF_MEMORY, "out of memory"),
        ],
    )
    def test_what_breaks_the_context_is_to_blame_and_the_next_one_is_timed(
        self, runner: Runner, library: Library, behaviour: str, status: CostStatus, words: str
    ) -> None:
        assert runner.run(library("right")).cost.is_valid
        cost = runner.run(library(behaviour)).cost
        assert cost.status is status and words in cost.reason, cost
        assert runner.run(library("right")).cost.is_valid

    def test_launching_is_hidden(self, runner: Runner, library: Library) -> None:
        """A kernel of 0.1 ms that takes the processor 1 ms to launch."""
        cost = runner.run(library("slow to launch")).cost
        assert cost.is_valid and 0.95e-4 < cost.median_sec < 1.5e-4, cost

    def test_clocks_come_with_the_times(self, runner: Runner, library: Library) -> None:
        clocks = runner.run(library("right")).clocks
        if clocks is not None:
            assert 100 < clocks.sm_mhz < 5000 and 100 < clocks.memory_mhz < 20_000


@gpu
@needs_gpu
def test_both_timers_agree(context: BuildContext, tmp_path: Path) -> None:
    """On two milliseconds to one percent, and on a short kernel to a microsecond."""
    session = CudaSession()
    timers = [TvmTimer(session.device, session._timer.stream)]
    if importlib.util.find_spec("pycuda") is not None:
        assert isinstance(session._timer, PycudaTimer)
        timers.append(session._timer)  # type: ignore[arg-type]
    else:
        assert isinstance(session._timer, TvmTimer)
    flush = session._flush(CudaConfig())
    flush.last(5e-4)
    for behaviour, low, high in (("sleep", 2.0e-3, 2.05e-3), ("right", 0.5e-6, 3e-5)):
        job = build(context, tmp_path / behaviour, behaviour, 4, 1000)
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(job.library)), session.device)
        machine.set_input("main", *session.upload(workload_of(4, 1000).make_inputs()))
        session.synchronize()
        session.call(machine)
        medians = [float(np.median(t.time(machine, 1, 30, flush))) for t in timers]
        assert all(low <= m < high for m in medians), (behaviour, medians)
        assert max(medians) - min(medians) < max(1e-6, 0.01 * medians[0]), (behaviour, medians)
        calls = [t.time(machine, 10, 1, session.synchronize)[0] for t in timers]
        assert all(c > 5 * min(medians) for c in calls)


@gpu
@needs_gpu
def test_the_cache_is_flushed(context: BuildContext, tmp_path: Path) -> None:
    """A kernel whose data fits into the cache takes longer when it comes from memory."""
    session = CudaSession()
    size = int(session.device.l2_cache_size_bytes) // 16
    job = build(context, tmp_path / "job", "right", size // 4)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(job.library)), session.device)
    machine.set_input("main", *session.upload(workload_of(size // 4).make_inputs()))
    session.synchronize()
    cold = np.median(session.sample(machine, MeasureConfig()))
    warm = np.median([t / 200 for t in session._timer.time(machine, 200, 5, session.synchronize)])
    print(f"cold {cold * 1e6:.2f} us, warm {warm * 1e6:.2f} us")
    assert cold > warm


@gpu
@needs_gpu
def test_the_device_has_facts() -> None:
    device = CUDA_POLICY.detect()
    assert device.kind == "cuda" and device.name and device.cores > 0
    assert device.features.startswith("sm_") and device.memory_mib > 1000
    assert "CUDA" in device.driver and CUDA_POLICY.detect() == device
    print(CUDA_POLICY.device_key(device), device.driver)


@gpu
@needs_gpu
def test_the_cost_model_measures_and_replays(context: BuildContext, tmp_path: Path) -> None:
    database = JsonLinesDatabase(tmp_path / "log.jsonl")
    workloads = [workload_of(n, 1000) for n in (1, 64, 4096)]
    targets = [toy_cuda_target()] * 3 + [toy_cuda_target("fault"), toy_cuda_target("wrong")]
    asked = [*workloads, workloads[0], workloads[0]]
    options = get_backend("tvm").parse_options({})
    native = BackendTarget("tvm", targets[0].device, options)
    with MeasuredCostModel(context, database) as model:
        costs = model.estimate(asked, targets)
        overheads = model.overheads(native)
    statuses = [cost.status for cost in costs]
    assert statuses == [CostStatus.VALID] * 3 + [CostStatus.CRASHED, CostStatus.WRONG_RESULT]
    assert costs[0].median_sec < costs[2].median_sec < 1e-3
    print(overheads)
    # Two events next to each other; one dependent kernel after another.
    assert 0 <= overheads.call_sec < 1e-5 and 1e-7 < overheads.partition_sec < 1e-5
    before = workers()
    with MeasuredCostModel(context, database, replay_only=True) as model:
        assert model.estimate(asked, targets) == costs
        assert model.overheads(native) == overheads
        assert workers() == before, "no worker is started"


@gpu
@needs_gpu
def test_whole_models_are_timed_as_their_user_sees_them(
    context: BuildContext, tmp_path: Path
) -> None:
    """Nothing is hidden: a model that takes 1 ms to launch takes 1 ms."""
    jobs = {
        name: build(context, tmp_path / name, name, 4, 1000)
        for name in ("right", "sleep", "slow to launch", "fault")
    }
    workload = workload_of(4, 1000)
    sample = make_test_data(workload, workload.materialize(), 0)
    models = [WholeModel(name, name, (toy_cuda_target(name),)) for name in jobs]
    libraries = [job.library for job in jobs.values()]
    with MeasuredCostModel(context, JsonLinesDatabase()) as model:
        question = EndToEndQuestion(models, [sample], rounds=2)
        records = model.whole_models(models[0].targets).measure(question, libraries)
    right, sleep, launch, fault = (record.cost for record in records)
    assert right.is_valid and right.median_sec < 1e-4
    assert sleep.is_valid and 2.0e-3 <= sleep.median_sec < 2.2e-3
    assert launch.is_valid and 1.0e-3 <= launch.median_sec < 2e-3
    assert fault.status is CostStatus.CRASHED and math.isinf(fault.median_sec)


@gpu
@needs_gpu
def test_a_configuration_with_few_samples_is_another_key(context: BuildContext) -> None:
    database, workload, target = JsonLinesDatabase(), workload_of(3, 3), toy_cuda_target()
    for repeat in (10, 20):
        config = dataclasses.replace(MeasureConfig(), cuda=CudaConfig(repeat=repeat))
        with MeasuredCostModel(context, database, config) as model:
            assert model.estimate([workload], [target])[0].is_valid
    assert len(database) == 2
