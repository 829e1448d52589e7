"""Only one measurement at a time, whoever asks, and no lock survives its holder."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from collage.backends.devices import CPU, CUDA
from collage.backends.storage.device_lock import exclusive


@pytest.fixture(autouse=True)
def locks_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else measures on this machine meanwhile has locks in another folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_the_second_waits_until_the_first_is_done() -> None:
    order: list[str] = []

    def second() -> None:
        with exclusive(CPU, lambda: order.append("waits")):
            order.append("has it")

    thread = threading.Thread(target=second)
    with exclusive(CPU, lambda: order.append("must not wait")):
        thread.start()
        deadline = time.monotonic() + 10
        while "waits" not in order and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        order.append("done")
    thread.join(10)
    assert order == ["waits", "done", "has it"]


def test_devices_do_not_wait_for_each_other() -> None:
    waited: list[str] = []
    with exclusive(CPU, lambda: None), exclusive(CUDA, lambda: waited.append("cuda")):
        assert not waited


def test_a_gpu_changes_hands_within_milliseconds() -> None:
    spans: list[tuple[float, float, str]] = []

    def holder(name: str) -> None:
        for _ in range(30):
            with exclusive(CUDA):
                begin = time.monotonic()
                time.sleep(0.005)
                spans.append((begin, time.monotonic(), name))

    threads = [threading.Thread(target=holder, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    gaps = [b[0] - a[1] for a, b in itertools.pairwise(spans) if a[2] != b[2]]
    assert min(gaps) > 0 and len(gaps) > 30, "who waits comes next"
    assert statistics.median(gaps) < 0.01


_HOLDER = """
import time
from collage.backends.devices import CPU, CUDA
from collage.backends.storage.device_lock import exclusive
with exclusive(CPU, lambda: None):
    print("held", flush=True)
    time.sleep(1000)
"""


def test_a_killed_holder_leaves_no_lock_behind() -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLDER], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        waited: list[str] = []
        killer = threading.Timer(0.3, holder.kill)
        killer.start()
        with exclusive(CPU, lambda: waited.append("waits")):
            assert waited == ["waits"] and holder.wait(5) != 0
