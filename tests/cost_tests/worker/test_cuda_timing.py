"""How CUDA samples are taken, on devices that do as they are told."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.cost.config import CudaConfig, MeasureConfig
from collage.cost.device import CPU_POLICY, CUDA_POLICY
from collage.cost.processes.messages import Load
from collage.cost.processes.protocol import decode, encode
from collage.cost.worker.cuda import timers
from collage.cost.worker.cuda.flush import CacheFlush
from collage.cost.worker.cuda.timers import TvmTimer, open_timer
from collage.cost.worker.sampling import take_single_samples
from tests.cost_tests.reference.test_reference import function, tensor

CONFIG = MeasureConfig(
    min_repeat=4, timing_budget_sec=0.2, cuda=CudaConfig(repeat=50, min_repeat=20, warmup_sec=0.0)
)


class Clock:
    """Every call takes what it is told; counts them."""

    def __init__(self, per_call_sec: Callable[[], float], sleep_sec: float = 0.0) -> None:
        self._per_call_sec = per_call_sec
        self._sleep_sec = sleep_sec
        self.asked: list[int] = []

    def __call__(self, number: int) -> Sequence[float]:
        self.asked.append(number)
        time.sleep(number * self._sleep_sec)
        return [self._per_call_sec() for _ in range(number)]


def test_a_steady_kernel_gets_few_single_samples() -> None:
    clock = Clock(lambda: 5e-6)
    samples = take_single_samples(clock, CONFIG)
    assert samples == (5e-6,) * 20, "the first, cold one does not count"
    assert clock.asked == [1, 10, 10]


def test_a_noisy_kernel_gets_all_of_them() -> None:
    noise = itertools.cycle([4e-6, 5e-6, 6e-6])
    samples = take_single_samples(Clock(lambda: next(noise)), CONFIG)
    assert len(samples) == 50 and set(samples) == {4e-6, 5e-6, 6e-6}


def test_a_slow_and_noisy_kernel_costs_no_more_than_its_budget() -> None:
    noise = itertools.cycle([0.02, 0.03, 0.04])
    samples = take_single_samples(Clock(lambda: next(noise), sleep_sec=0.03), CONFIG)
    assert CONFIG.min_repeat <= len(samples) < 20


def test_a_hopeless_kernel_is_timed_once() -> None:
    clock = Clock(lambda: 3.0)
    assert take_single_samples(clock, CONFIG) == (3.0,)
    assert clock.asked == [1]


def test_a_device_is_warmed_up_by_calls_that_do_not_count() -> None:
    config = MeasureConfig(cuda=CudaConfig(repeat=20, min_repeat=20, warmup_sec=0.05))
    times = itertools.chain([1.0] * 11, itertools.repeat(2.0))
    clock = Clock(lambda: next(times) * 1e-6, sleep_sec=2e-3)
    assert set(take_single_samples(clock, config)) == {2e-6}
    assert len(clock.asked) >= 5


class Memory:
    """Device memory that takes a millisecond to fill, by a clock of its own.

    The processor's clock says how busy the machine is, too.
    """

    def __init__(self) -> None:
        self.fills: list[tuple[int, int, int]] = []
        self._now = 100.0
        self._busy_until = 0.0

    def perf_counter(self) -> float:
        return self._now

    def fill(self, address: int, words: int, stream: int) -> None:
        self.fills.append((address, words, stream))
        self._now += 1e-5
        self._busy_until = max(self._busy_until, self._now) + 1e-3

    def synchronize(self) -> None:
        self._now = max(self._now, self._busy_until)


def test_a_flush_lasts_as_long_as_it_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    monkeypatch.setattr("collage.cost.worker.cuda.flush.time", memory)
    flush = CacheFlush(memory, 4096, 1 << 20, 7)
    assert flush.fill_sec == pytest.approx(1e-3, rel=0.01)
    for lead_sec, times in ((1e-5, 1), (2.5e-3, 3), (1e-2, 10)):
        memory.fills.clear()
        flush.last(lead_sec)
        begin = memory.perf_counter()
        flush()
        memory.synchronize()
        assert memory.perf_counter() - begin >= lead_sec
        assert memory.fills == [(4096, 1 << 18, 7)] * times


def negative_machine() -> relax.VirtualMachine:
    x = tensor(1000)
    executable = tvm.compile(function([x], op.negative(x)), target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    machine.set_input("main", tvm.runtime.tensor(np.ones(1000, "float32")))
    return machine


def test_tvm_s_evaluator_prepares_every_sample_and_not_within_its_time() -> None:
    """The evaluator is TVM's own; on a processor it takes the same way as on a GPU."""
    timer = TvmTimer(tvm.cpu(), stream=0)
    prepared: list[float] = []

    def prepare() -> None:
        prepared.append(time.perf_counter())
        time.sleep(0.01)

    seconds = timer.time(negative_machine(), 3, 4, prepare)
    assert len(seconds) == 4 and len(prepared) == 4
    assert all(0 < s < 0.005 for s in seconds), "ten milliseconds of preparation do not count"
    apart = np.diff(prepared)
    assert (apart >= 0.01).all()
    more = timer.time(negative_machine(), 3000, 1, lambda: None)
    assert more[0] > 20 * min(seconds), "the time of all calls together"


def test_what_goes_wrong_in_front_of_a_sample_is_raised() -> None:
    def prepare() -> None:
        raise ValueError("the flush failed")

    with pytest.raises(ValueError, match="the flush failed"):
        TvmTimer(tvm.cpu(), stream=0).time(negative_machine(), 1, 1, prepare)


def test_without_pycuda_tvm_takes_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setattr(timers, "make_current", lambda *_: None)
    assert open_timer(tvm.cpu()).name == "TVM"


@pytest.mark.parametrize(
    "wrong", [{"min_repeat": 0}, {"min_repeat": 999}, {"flush_factor": 0.0}, {"lead_sec": -1.0}]
)
def test_a_cuda_configuration_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        CudaConfig(**wrong)


def test_a_configuration_arrives_at_a_worker_and_counts_only_where_it_matters() -> None:
    config = MeasureConfig(repeat=7, cuda=CudaConfig(repeat=77))
    request: Load = decode(encode(Load(Path(), (Path(),), config, "")), Load)
    assert request.config == config
    cpu, cuda = CPU_POLICY, CUDA_POLICY
    assert "cuda" not in cpu.config_key(config) and cpu.config_key(config)["repeat"] == 7
    assert cpu.config_key(config) == cpu.config_key(MeasureConfig(repeat=7))
    assert cuda.config_key(config)["cuda"]["repeat"] == 77
    assert cuda.build_timeout_sec(config) > cpu.build_timeout_sec(config)
    assert cpu.build_timeout_sec(config) == config.build_timeout_sec
    assert cuda.run_timeout_sec(config) > cpu.run_timeout_sec(config) == config.run_timeout_sec
