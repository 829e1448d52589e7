"""What workers import is there before the first of them is wanted."""

from __future__ import annotations

import psutil

from collage.backends.toolchain.children.fork_server import fork_servers
from collage.cost.processes.worker_process import WorkerProcess
from collage.cost.processes.worker_program import prepare_workers


def _servers() -> set[int]:
    """Of this process's; one that has begun is a Python interpreter until it has its name."""
    return {child.pid for child in psutil.Process().children()}


def test_workers_of_every_kind_are_forks_of_what_was_prepared() -> None:
    with fork_servers().kept():
        before = _servers()
        prepare_workers()
        prepared = _servers() - before
        assert len(prepared) <= 1, "where one ran already it is that"
        for options in ({}, {"blas_threads": 1}, {"environment": {"CUDA_VISIBLE_DEVICES": "1"}}):
            worker = WorkerProcess(memory_limit_bytes=1 << 30, **options)
            try:
                worker.wait_until_ready()
                server = psutil.Process(worker.pid).parent()
                assert server is not None and server.pid in prepared | before
            finally:
                worker.close()
        assert _servers() == prepared | before
