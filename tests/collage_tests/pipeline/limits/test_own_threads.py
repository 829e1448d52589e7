"""Products of this process leave cores to compilers, and have them back afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from collage.pipeline.limits import few_own_threads


def _blas_threads() -> list[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize(
    ("cores", "few"), [(1, 1), (2, 1), (3, 2), (7, 2), (8, 2), (16, 4), (32, 8), (256, 8)]
)
def test_a_part_of_the_cores(cores: int, few: int) -> None:
    with threadpool_limits(limits=16, user_api="blas"):
        with few_own_threads(cores):
            assert set(_blas_threads()) == {few}
        assert set(_blas_threads()) == {16}


def test_no_more_than_the_user_has_asked_for() -> None:
    with threadpool_limits(limits=1, user_api="blas"):
        with few_own_threads(64):
            assert set(_blas_threads()) == {1}
        assert set(_blas_threads()) == {1}


def test_of_two_searches_that_overlap_the_last_gives_the_cores_back() -> None:
    with threadpool_limits(limits=16, user_api="blas"):
        first, second = few_own_threads(32), few_own_threads(32)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(_blas_threads()) == {8}
        second.__exit__(None, None, None)
        assert set(_blas_threads()) == {16}
