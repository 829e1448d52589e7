"""What CUDA devices are known by, and what of that is in the keys of the log."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import tvm
import tvm_ffi

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import MeasurementError, TargetError
from collage.backends.contract.registry import get_backend
from collage.backends.toolchain.cuda_driver import CudaDriver
from collage.backends.toolchain.cuda_runtime import Gpu, has_device
from collage.backends.toolchain.cuda_toolkit import find_toolkit
from collage.cost.base import Clocks, Cost, CostStatus
from collage.cost.config import CudaConfig, MeasureConfig
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.keys import KeyMaker
from collage.cost.database.record import Record
from collage.cost.device import CPU_POLICY, CUDA_POLICY, Device, LocalDevice, cuda, policy_for
from collage.cost.device.nvml import Management
from collage.cost.engines import LocalEngine
from collage.cost.measure.engine import Work
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.replay import MeasureStats, RecordLookup
from collage.cost.measure.runner import RunJob
from collage.cost.measure.scheduler import Measurer
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.progress import ignore
from collage.cost.reference.rounding import fewest_digits
from collage.cost.worker.cuda.timers import make_current
from tests.cost_tests.conftest import tvm_workload
from tests.cost_tests.device.conftest import variable

SM90 = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
H200 = Device("cuda", "NVIDIA H200", 132, "sm_90", "580.65.06, CUDA 13.0", 143_771)

without_device = pytest.mark.skipif(has_device(), reason="there is a CUDA device here")


def on_the_stand_in(fake: Path, monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """A machine with an H200; the list is what TVM finds there."""
    found = [Gpu("NVIDIA H200", 90, 132, 150_754_820_096)]
    open_management = Management.open
    monkeypatch.setattr(cuda, "load_runtime", lambda: None)
    monkeypatch.setattr(cuda, "find_gpu", lambda index: found[index] if found else None)
    monkeypatch.setattr(cuda, "CudaDriver", lambda: CudaDriver(str(fake)))
    monkeypatch.setattr(cuda.Management, "open", lambda bus_id: open_management(bus_id, str(fake)))
    return found


def two_gpus(fake: Path, monkeypatch: pytest.MonkeyPatch, second: Gpu) -> list[LocalDevice]:
    """What a machine with an H200 and another GPU has, with the management library of one."""
    on_the_stand_in(fake, monkeypatch).append(second)
    monkeypatch.setattr(cuda.Management, "open", lambda bus_id: None)
    return CUDA_POLICY.all_here()


def test_every_gpu_is_named_so_that_a_process_sees_no_other(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what names it whatever the user lets this process see: numbers would count anew."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    gpus = two_gpus(fake, monkeypatch, Gpu("NVIDIA H200", 90, 132, 150_754_820_096))
    assert [(gpu.name, gpu.index) for gpu in gpus] == [("cuda:0", 0), ("cuda:1", 1)]
    assert gpus[0].device == gpus[1].device
    seen = [gpu.environment["CUDA_VISIBLE_DEVICES"] for gpu in gpus]
    assert seen == [
        "GPU-28292a2b-2c2d-2e2f-3031-323334353637",
        "GPU-292a2b2c-2d2e-2f30-3132-333435363738",
    ]


@pytest.mark.parametrize(("memory_bytes", "used"), [(150_754_820_096, 2), (85_899_345_920, 1)])
def test_gpus_that_are_alike_time_and_others_are_left_out_with_a_word(
    fake: Path,
    monkeypatch: pytest.MonkeyPatch,
    context: BuildContext,
    config: MeasureConfig,
    memory_bytes: int,
    used: int,
) -> None:
    gpus = two_gpus(fake, monkeypatch, Gpu("NVIDIA H200", 90, 132, memory_bytes))
    opened = LocalEngine().open(Work(CUDA_POLICY, context, config))
    assert [place.name for place in opened.places] == ["cuda:0", "cuda:1"][:used]
    assert opened.device == gpus[0].device
    assert opened.unused == ({} if used == 2 else {"cuda:1": "it is not like cuda:0"})
    # Each place's processes see its own device, and whole models are timed on the first.
    for place, gpu in zip(opened.places, gpus, strict=False):
        assert place.runner._environment == gpu.environment  # type: ignore[attr-defined]
    assert opened.timer(ignore)._environment == gpus[0].environment  # type: ignore[attr-defined]
    events: list[str] = []
    stats = MeasureStats()
    measurer = Measurer(
        LocalEngine(),
        Work(CUDA_POLICY, context, config),
        RecordLookup(JsonLinesDatabase(), stats),
        stats,
        lambda event: events.append(event.message),
    )
    try:
        with suppress(MeasurementError):  # There is no such GPU.
            measurer.measure(
                {
                    KeyMaker(context, config, H200).partition(
                        tvm_workload(2, 2), BackendTarget("tvm", SM90)
                    ): (tvm_workload(2, 2), BackendTarget("tvm", SM90))
                }
            )
    finally:
        measurer.close()
    assert ("cuda:1 is not used: it is not like cuda:0" in events) == (used == 1)


@contextmanager
def told(fake: Path, name: str, value: int) -> Iterator[None]:
    """The stand-in answers so meanwhile."""
    one = variable(fake, name)
    before, one.value = one.value, value
    try:
        yield
    finally:
        one.value = before


@pytest.mark.parametrize(
    ("name", "value", "condition"),
    [
        ("fake_limit", 310_500, "power limit 310.5 W"),
        ("fake_sm_clock", 1410, "SM clock set to 1410 MHz"),
        ("fake_mig", 1, "MIG slice of 3 with 2 to compute, 40192 MiB"),
    ],
)
def test_what_is_unusual_is_in_the_key_and_comes_back_from_it(
    fake: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int, condition: str
) -> None:
    on_the_stand_in(fake, monkeypatch)
    usual = CUDA_POLICY.detect()
    assert usual.conditions == ()
    assert CUDA_POLICY.device_key(usual) == "NVIDIA H200, 132 SMs, sm_90, 143771 MiB"
    with told(fake, name, value):
        unusual = CUDA_POLICY.detect()
    assert unusual == dataclasses.replace(usual, conditions=(condition,))
    several = dataclasses.replace(usual, conditions=(condition, "SM clock set to 900 MHz"))
    for device in (usual, unusual, several):
        key = CUDA_POLICY.device_key(device)
        assert CUDA_POLICY.device_from_key(key, device.driver) == device
    assert len({CUDA_POLICY.device_key(device) for device in (usual, unusual, several)}) == 3


def test_who_else_computes_on_a_gpu_is_said(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_IDLE_SEC", 0.0)
    on_the_stand_in(fake, monkeypatch)
    gpu = LocalDevice("cuda:0", H200)
    with told(fake, "fake_processes", 2):
        assert CUDA_POLICY.others(gpu) == "", "who waits is no harm"
        with told(fake, "fake_busy", 61):
            said = "others compute on it 61 % of the time (processes there: 900, 901)"
            assert CUDA_POLICY.others(gpu) == said
    with told(fake, "fake_busy", 61):
        assert CUDA_POLICY.others(gpu) == "others compute on it 61 % of the time"
        with told(fake, "fake_mig", 1):
            assert CUDA_POLICY.others(gpu) == "", "a slice has no such figure"


def test_the_device_s_facts(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_the_stand_in(fake, monkeypatch)
    assert CUDA_POLICY.detect() == dataclasses.replace(H200, driver="580.65.06, CUDA 13.1")
    assert CUDA_POLICY.device_key(H200) == "NVIDIA H200, 132 SMs, sm_90, 143771 MiB"
    monkeypatch.setattr(cuda.Management, "open", lambda bus_id: None)
    assert CUDA_POLICY.detect().driver == "CUDA 13.1"
    found.clear()
    with pytest.raises(TargetError, match=r"nothing can be measured.*there is no CUDA device"):
        CUDA_POLICY.detect()


@without_device
def test_without_a_device_nothing_is_measured_and_the_message_says_why(
    context: BuildContext, config: MeasureConfig
) -> None:
    target = BackendTarget("tvm", SM90)
    with pytest.raises(TargetError, match="nothing can be measured for target 'cuda'"):
        CUDA_POLICY.detect()
    with (
        MeasuredCostModel(context, JsonLinesDatabase(), config) as model,
        pytest.raises(TargetError, match="target 'cuda'"),
    ):
        model.estimate([tvm_workload(2, 2)], [target])
    with LocalRunner(config, policy=CUDA_POLICY) as runner:
        job = RunJob.in_folder(context.work_dir)
        with pytest.raises(MeasurementError, match="a measuring process cannot start"):
            runner.run(job)


def test_what_is_measured_on_follows_from_the_targets() -> None:
    cpu, gpu = BackendTarget("tvm", tvm.target.Target("llvm")), BackendTarget("cublas", SM90)
    assert policy_for([cpu, cpu]) is CPU_POLICY and policy_for([gpu]) is CUDA_POLICY
    with pytest.raises(TargetError, match="several kinds"):
        policy_for([cpu, gpu])


def test_keys_on_a_gpu_hold_the_gpu_and_its_compiler(context: BuildContext) -> None:
    workload, target = tvm_workload(2, 2), BackendTarget("tvm", SM90)
    config = MeasureConfig()
    key = KeyMaker(context, config, H200).partition(workload, target)
    assert key.device == "NVIDIA H200, 132 SMs, sm_90, 143771 MiB"
    assert key.driver == "580.65.06, CUDA 13.0"
    assert dict(key.versions)["nvcc"] == find_toolkit().version
    assert json.loads(key.config)["cuda"]["repeat"] == config.cuda.repeat
    threads = dataclasses.replace(context, num_threads=2)
    assert KeyMaker(threads, config, H200).partition(workload, target) == key
    for other in (
        KeyMaker(context, MeasureConfig(cuda=CudaConfig(repeat=50)), H200),
        KeyMaker(context, config, dataclasses.replace(H200, driver="590.1, CUDA 13.0")),
        KeyMaker(context, config, dataclasses.replace(H200, cores=66)),
        KeyMaker(context, config, dataclasses.replace(H200, memory_mib=80_000)),
    ):
        assert other.partition(workload, target) != key


def test_keys_on_a_cpu_know_nothing_of_gpus(context: BuildContext) -> None:
    """Logs of releases that could not measure on GPUs stay hits."""
    target = BackendTarget("tvm", tvm.target.Target("llvm"))
    cpu = CPU_POLICY.detect()
    key = KeyMaker(context, MeasureConfig(), cpu).partition(tvm_workload(2, 2), target)
    assert "nvcc" not in dict(key.versions) and "cuda" not in json.loads(key.config)
    assert key.device == f"{cpu.name}, {cpu.cores} cores, isa {cpu.features}"
    other = MeasureConfig(cuda=CudaConfig(repeat=50))
    assert KeyMaker(context, other, cpu).partition(tvm_workload(2, 2), target) == key


def test_a_search_on_a_log_of_another_machine_replays(
    context: BuildContext, config: MeasureConfig
) -> None:
    """Who says which device a log is of needs none to replay it."""
    workload, target = tvm_workload(3, 3), BackendTarget("tvm", SM90)
    key = KeyMaker(context, config, H200).partition(workload, target)
    database = JsonLinesDatabase()
    cost = Cost(CostStatus.VALID, 2e-6, 1e-8, (2e-6,))
    database.append(Record(key, cost, "relu", "tvm", clocks=Clocks(1980, 3201)))
    with MeasuredCostModel(context, database, config, replay_only=True, device=H200) as model:
        assert model.estimate([workload], [target]) == [cost]


def test_clocks_are_kept_and_old_lines_are_still_read(context: BuildContext) -> None:
    key = KeyMaker(context, MeasureConfig(), H200).partition(
        tvm_workload(2, 2), BackendTarget("tvm", SM90)
    )
    record = Record(key, Cost(CostStatus.VALID, 1e-5, 0.0, (1e-5,)), clocks=Clocks(1980, 3201))
    line = json.loads(record.to_json())
    assert (line["sm_clock_mhz"], line["memory_clock_mhz"]) == (1980, 3201)
    assert Record.from_json(json.dumps(line)) == record
    for name in ("sm_clock_mhz", "memory_clock_mhz"):
        del line[name]
    old = Record.from_json(json.dumps(line))
    assert old == dataclasses.replace(record, clocks=None) and old.key == key


def test_fewer_digits_are_allowed_where_a_target_or_a_tensor_says_so() -> None:
    def target(backend: str, **options: bool) -> BackendTarget:
        return BackendTarget(backend, SM90, get_backend(backend).parse_options(options))

    plain = target("tensorrt")
    for options, form in (
        ({"use_fp16": True}, "float16"),
        ({"use_bf16": True}, "bfloat16"),
        ({"use_int8": True}, "bfloat16"),
        ({"use_tf32": True}, "tf32"),
    ):
        assert fewest_digits([plain, target("tensorrt", **options)]) == form
    for name in ("cublas", "cudnn", "cutlass"):
        assert fewest_digits([plain, target(name, allow_tf32=True)]) == "tf32"
    # Three products rounded to TF32 make up one of float32.
    assert fewest_digits([plain, target("cutlass", use_3xtf32=True)]) == "float32"


def test_calls_go_to_the_stream_that_was_made_current() -> None:
    before = tvm_ffi.get_raw_stream(tvm.cpu())
    try:
        make_current(tvm.cpu(), 0x1234_5678_9ABC)
        assert tvm_ffi.get_raw_stream(tvm.cpu()) == 0x1234_5678_9ABC
    finally:
        make_current(tvm.cpu(), before)
