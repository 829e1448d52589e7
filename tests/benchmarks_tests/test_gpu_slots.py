"""Several GPUs: each contest sees its own, and their searches do not wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.gpu.slots import GpuSlot, Turns, gpu_slots

_DRIVER = """
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return 0; }
int cuDeviceGetPCIBusId(char* text, int size, int device) {
    snprintf(text, size, "0000:%s:00.0", getenv("CUDA_VISIBLE_DEVICES"));
    return 0;
}
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGetUuid_v2(void) { return 1; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuMemsetD32Async(void) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuGetErrorName(void) { return 1; }
int cuGetErrorString(void) { return 1; }
"""
_HOLD = """
import sys
from collage.backends.devices import CUDA
from collage.backends.storage import exclusive
with exclusive(CUDA, lambda: print("waits", flush=True)):
    print("has it", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A folder with a driver that places each GPU by what a process may see."""
    source = tmp_path / "driver.c"
    source.write_text(_DRIVER, encoding="utf-8")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return tmp_path


def _holder(driver: Path, gpu: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver), "CUDA_VISIBLE_DEVICES": gpu}
    command = [sys.executable, "-c", _HOLD]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


def test_searches_wait_for_the_same_gpu_only(driver: Path) -> None:
    first, other, second = (_holder(driver, gpu) for gpu in ("3", "4", "3"))
    answers = [child.stdout.readline().strip() for child in (first, other, second) if child.stdout]
    assert answers[1] == "has it"
    assert sorted([answers[0], answers[2]]) == ["has it", "waits"]
    holder, waiting = (first, second) if answers[0] == "has it" else (second, first)
    holder.communicate()
    assert waiting.communicate()[0].strip() == "has it"
    other.communicate()


def test_slots_divide_the_cores() -> None:
    cores = os.sched_getaffinity(0)
    two = gpu_slots(["0", "1"])
    assert [slot.environment for slot in two] == [
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "1"},
    ]
    assert all(set(slot.cores) <= cores and slot.cores for slot in two)
    if len(cores) > 1:
        assert not set(two[0].cores) & set(two[1].cores)
    assert len(gpu_slots([str(i) for i in range(len(cores) + 3)])) == len(cores) + 3


def test_slots_abreast_share_a_gpu() -> None:
    four = gpu_slots(["0", "1"], abreast=2)
    assert [slot.gpu for slot in four] == ["0", "1", "0", "1"]
    assert four[0].turns is four[2].turns and four[0].turns is not four[1].turns
    assert four[0].cores == four[2].cores


def test_nobody_times_beside_another_one() -> None:
    turns = Turns()
    preparing: set[int] = set()
    timing: set[int] = set()
    together: list[int] = []
    wrong: list[str] = []
    both = threading.Barrier(2)

    def contest(number: int) -> None:
        for count in range(20):
            with turns.preparing():
                preparing.add(number)
                if count == 0:
                    both.wait(10)
                together.append(len(preparing))
                if timing:
                    wrong.append("prepared while another one was timed")
                preparing.discard(number)
            with turns.timing():
                timing.add(number)
                if preparing or len(timing) > 1:
                    wrong.append("timed beside another one")
                timing.discard(number)

    threads = [threading.Thread(target=contest, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert max(together) == 2


def test_a_slots_children_keep_to_its_cores() -> None:
    core = min(os.sched_getaffinity(0))
    seen: list[str] = []

    def work() -> None:
        GpuSlot("", (core,)).enter()
        code = "import os; print(sorted(os.sched_getaffinity(0)))"
        seen.append(subprocess.check_output([sys.executable, "-c", code], text=True).strip())

    before = os.sched_getaffinity(0)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [f"[{core}]"]
    assert os.sched_getaffinity(0) == before
