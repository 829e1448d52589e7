"""Products of this process leave cores to compilers, and have them back afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from collage.pipeline.limits import few_own_threads


def _blas_threads() -> list[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize(("cores", "few"), [(8, 2), (16, 4), (32, 8), (256, 8)])
def test_a_part_of_many_cores(cores: int, few: int) -> None:
    before = _blas_threads()
    with few_own_threads(cores):
        assert set(_blas_threads()) == {few}
    assert _blas_threads() == before


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_all_of_few_cores(cores: int) -> None:
    before = _blas_threads()
    with few_own_threads(cores):
        assert _blas_threads() == before
