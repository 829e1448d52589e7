"""The local runner keeps the contract, and its children die with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collage.backends.contract.errors import MeasurementError
from collage.cost.config import MeasureConfig
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.processes.worker_process import WorkerProcess
from collage.testing.runner_contract import RunnerContract
from tests.cost_tests.conftest import Library


class TestLocalRunner(RunnerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def shared_runner(cls) -> Iterator[LocalRunner]:
        """One for all tests: each must leave it usable."""
        config = MeasureConfig(
            repeat=3,
            min_repeat=2,
            min_repeat_sec=0.005,
            warmup_sec=0.002,
            run_timeout_sec=4.0,
            memory_limit_bytes=512 << 20,
        )
        with LocalRunner(config) as runner:
            yield runner

    @pytest.fixture
    def runner(self, shared_runner: LocalRunner) -> LocalRunner:
        return shared_runner

    def test_a_crash_is_not_blamed_on_the_wrong_kernel(
        self, config: MeasureConfig, library: Library
    ) -> None:
        """The process dies in a later run of what an earlier kernel did to it."""
        with LocalRunner(config) as runner:
            assert runner.run(library("right")).cost.is_valid
            worker = runner._worker
            assert worker is not None
            os.kill(worker.pid, signal.SIGSEGV)
            assert runner.run(library("right")).cost.is_valid
            assert runner._worker is not worker


def _wait_until_gone(pid: int, timeout_sec: float = 5.0) -> bool:
    deadline = time.monotonic() + timeout_sec
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


_PARENT = """
import time
from collage.cost.processes.worker_process import WorkerProcess
worker = WorkerProcess(memory_limit_bytes=1 << 30)
worker.wait_until_ready()
print(worker.pid, flush=True)
time.sleep(1000)
"""


def test_a_worker_dies_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
    assert _wait_until_gone(pid)


def test_a_worker_that_cannot_import_its_plugin_says_so() -> None:
    worker = WorkerProcess(["no_such_module:Backend"], memory_limit_bytes=1 << 30)
    try:
        with pytest.raises(MeasurementError, match="No module named 'no_such_module'"):
            worker.wait_until_ready()
    finally:
        worker.close()


_FAKE_TORCH = """
import pathlib
pathlib.Path(__file__).with_name("imported").touch()
raise ImportError("too slow")
"""


def test_a_worker_does_not_import_torch_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM does, wherever it is installed; a backend that wants it still gets it."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(_FAKE_TORCH)
    (tmp_path / "wants_torch.py").write_text("import torch")
    monkeypatch.syspath_prepend(str(tmp_path))
    worker = WorkerProcess(memory_limit_bytes=1 << 30)
    try:
        worker.wait_until_ready()
        assert not (package / "imported").exists()
    finally:
        worker.close()
    worker = WorkerProcess(["wants_torch:Backend"], memory_limit_bytes=1 << 30)
    try:
        with pytest.raises(MeasurementError, match="too slow"):
            worker.wait_until_ready()
        assert (package / "imported").exists()
    finally:
        worker.close()
