"""Which configurations are proposed for a product, best guess first."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu.cases.compiling import ARCH
from collage.backends.cutlass.families import KernelSpec
from collage.backends.cutlass.families.gemm.configurations import (
    MAX_CANDIDATES,
    GemmConfiguration,
    configurations,
    takes_tma,
)
from collage.backends.cutlass.families.gemm.problem import GemmProblem, Operand, plan
from collage.backends.cutlass.options import CutlassOptions
from tests.backends_tests.cutlass.reading import problem

pytestmark = pytest.mark.cuda  # specs name CUTLASS's version


def proposals(p: GemmProblem, math: str = "tensor", **options: Any) -> list[GemmConfiguration]:
    spec = KernelSpec("matmul", (), p.dtype, math, p.layout, "none", (), p.tensors()[2])
    return configurations(p, spec, CutlassOptions(**options), ARCH)


@pytest.mark.parametrize("shape", [(1, 768, 3072), (128, 768, 768), (4096, 4096, 4096)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_few_distinct_configurations(shape: tuple[int, int, int], dtype: str) -> None:
    math = "tensor" if dtype == "float16" else "3xtf32"
    made = proposals(problem(*shape, dtype=dtype), math)
    assert 1 < len(made) <= MAX_CANDIDATES
    assert len(set(made)) == len(made)


def test_large_products_get_large_tiles_small_ones_small_tiles_or_slices() -> None:
    large = proposals(problem(8192, 8192, 4096))[0]
    assert large.kind == "sm90"
    assert large.tile.shape[0] * large.tile.shape[1] >= 128 * 128
    row = proposals(problem(1, 768, 3072))
    assert "split_k" in [c.kind for c in row[:2]]
    assert all(c.tile.shape[0] == 64 for c in row[:2])
    assert {"split_k", "sm80"} <= {c.kind for c in row}


def test_kinds_follow_what_the_operands_allow() -> None:
    assert takes_tma(problem(128, 768, 768))
    odd = problem(128, 770, 768)
    assert not takes_tma(odd)
    assert {c.kind for c in proposals(odd)} <= {"sm80", "split_k"}
    assert {c.kind for c in proposals(problem(128, 768, 768), sm=80)} <= {"sm80", "split_k"}
    shared = plan(Operand((64, 64)), Operand((8, 64, 64)), (8, 64, 64), "float16")
    assert not takes_tma(shared)
    single = problem(128, 768, 768, dtype="float32")
    assert {c.kind for c in proposals(single, "simt")} <= {"sm80", "split_k"}


def test_accesses_are_as_wide_as_the_rows_divide() -> None:
    assert {c.alignments for c in proposals(problem(64, 36, 50))} == {(2, 4, 4)}
    odd = proposals(problem(64, 35, 51))
    assert {c.alignments for c in odd} == {(1, 1, 1)}
    # Asynchronous copies move four bytes at least.
    assert {c.tile.stages for c in odd} == {2}
    tried = {c.alignments for c in proposals(problem(64, 36, 50), profile_all_alignments=True)}
    assert tried == {(2, 4, 4), (2, 2, 2), (1, 1, 1)}


def test_slices_are_those_asked_for() -> None:
    p = problem(16, 768, 3072)
    assert {c.slices for c in proposals(p, split_k_slices=1)} == {1}
    assert {c.slices for c in proposals(p, split_k_slices=4)} == {4}
    assert {c.slices for c in proposals(p, split_k_slices="1,2,8")} <= {1, 2, 8}
    # Too shallow, or a batch: not sliced whatever is asked.
    assert {c.slices for c in proposals(problem(16, 768, 128), split_k_slices=4)} == {1}
    batched = plan(Operand((4, 16, 3072)), Operand((4, 3072, 64)), (4, 16, 64), "float16")
    assert {c.slices for c in proposals(batched, split_k_slices=4)} == {1}
