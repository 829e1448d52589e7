"""The program of a worker process, as it starts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from collage.backends.toolchain.children.child_boot import Line
from collage.cost.config import MeasureConfig
from collage.cost.device import CPU_POLICY
from collage.cost.processes.protocol import Ready, Settings, decode_handshake, encode
from collage.cost.processes.worker_pool import WorkerPool
from collage.cost.worker.main import main


class _Silent(Line):
    """To a search that asks nothing."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def __iter__(self) -> Iterator[bytes]:
        return iter(())

    def answer(self, line: bytes) -> None:
        self.answers.append(line)


def _blas_threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize(("asked", "threads"), [(1, 1), (3, 3), (None, 4)])
def test_products_take_the_threads_that_they_are_given(asked: int | None, threads: int) -> None:
    settings = Settings((), CPU_POLICY.session, False, False, None, blas_threads=asked)
    line = _Silent()
    with threadpool_limits(limits=4, user_api="blas"):
        main(line, encode(settings).decode())
        assert _blas_threads() == {threads}
    assert decode_handshake(line.answers[0], Ready) == Ready()


@pytest.mark.parametrize(("parallel", "cores", "threads"), [(1, 2, None), (2, 2, 1), (2, 8, 4)])
def test_builders_share_the_cores(
    parallel: int, cores: int, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two cores two builders' products had two threads each, which took ten times as long."""
    monkeypatch.setattr("collage.cost.processes.worker_pool.available_cores", lambda: cores)
    limit = MeasureConfig().memory_limit_bytes
    pool = WorkerPool((), parallel, CPU_POLICY, timeout_sec=60.0, memory_limit_bytes=limit)
    assert pool._blas_threads == threads
