"""Long sums of few tiles are cut into parts, and few columns still go to tensor cores."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu.cases.compiling import cuda_target, partition_case
from benchmarks.gpu.cases.tvm import cases, conv
from collage.backends.contract import BuildContext
from collage.backends.contract.registry import get_backend
from collage.backends.tvm.common.families import SCHEDULE_ATTR
from collage.backends.tvm.cuda.schedules.split_sums import choose_parts, cuts
from tests.backends_tests.tvm.cuda.lowered import kernels

_CASES = {case.name: case for case in (*conv.cases(), *cases.cases())}


@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("conv2d_in_parts", 2),
        ("conv2d_in_parts_single", 2),
        ("conv3d_in_parts", 2),
        ("conv2d_in_parts_uneven", 2),
        ("dense_long", 2),
        ("conv2d_two_channels", 1),
        ("dense_dense", 1),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_on_tensor_cores(
    name: str, launches: int, dtype: str, context: BuildContext
) -> None:
    partitioned = partition_case(_CASES[f"{name}-{dtype}"], cuda_target())
    lowered = get_backend("tvm").lower(partitioned.module, partitioned.targets[0], context)
    (func,) = kernels(lowered).values()
    assert str(func.attrs[SCHEDULE_ATTR]) == "tensor_core"
    text = func.script()
    assert "tvm_mma_sync" in text
    assert text.count('thread="blockIdx.x"') == launches


_TERMS = st.lists(st.integers(1, 7), max_size=3).flatmap(
    lambda outer: st.integers(1, 4096).map(lambda last: (*outer, last))
)


@given(_TERMS)
def test_cuts_divide_and_keep_whole_loads(terms: tuple[int, ...]) -> None:
    found = list(cuts(terms))
    assert found[0] == (1,) * len(terms)
    for cut in found:
        assert all(extent % count == 0 for extent, count in zip(terms, cut, strict=True))
        assert cut[-1] == 1 or terms[-1] // cut[-1] % 8 == 0


@given(_TERMS, st.integers(1, 2000), st.integers(1, 1 << 22))
def test_parts_are_for_chips_that_are_not_full(
    terms: tuple[int, ...], blocks: int, results: int
) -> None:
    parts = choose_parts(terms, blocks, results, 64, 132)
    assert parts in set(cuts(terms))
    if blocks >= 132 * math.prod(terms) / 64 or math.prod(terms) <= 64:
        assert math.prod(parts) == 1
