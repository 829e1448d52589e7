"""CUTLASS's fused attention: what is taken, how operands are read through their strides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.lib.stride_tricks import as_strided
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases import CudaCase, cases_of
from benchmarks.gpu.cases.cutlass.attention import attention, chain
from collage.backends.cutlass.families import KernelSpec
from collage.backends.cutlass.families.attention.family import (
    AttentionConfiguration,
    AttentionFamily,
)
from collage.backends.cutlass.options import CutlassOptions
from collage.testing.graphs import Emit, graph
from tests.backends_tests.cutlass.reading import Array, read_case, read_module, read_whole, refusal

CASES = cases_of("cutlass_attention")


def attend(spec: KernelSpec, given: list[Array]) -> Array:
    """What a kernel unit is told to compute, through the strides it is handed."""
    batch, heads, queries, keys, dim, dim_value, mask = spec.sizes[:7]
    strides = [spec.sizes[7 + 3 * i : 10 + 3 * i] for i in range(4)]
    offsets = (*spec.sizes[19:22], 0)
    if spec.layout == "joined":
        given = [given[0]] * 3 + given[1:]

    def view(i: int, rows: int, columns: int) -> Array:
        row, head, whole = strides[i]
        start = given[i].reshape(-1)[offsets[i] :]
        size = start.itemsize
        shape = (batch, heads, rows, columns)
        # The farthest element must lie within the tensor.
        far = [(n - 1) * s for n, s in zip(shape, (whole, head, row, 1), strict=True)]
        assert sum(far) < start.size
        return as_strided(start, shape, (whole * size, head * size, row * size, size))

    q, k, v = view(0, queries, dim), view(1, keys, dim), view(2, keys, dim_value)
    scores = spec.scalars[0] * (q @ np.swapaxes(k, -1, -2))
    if spec.epilogue == "bias":
        scores = scores + view(3, queries, keys)
    offset = keys - queries if mask == 2 else 0
    if mask:
        seen = np.arange(keys)[None, :] <= np.arange(queries)[:, None] + offset
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result = (weights / weights.sum(axis=-1, keepdims=True)) @ v
    return result if spec.layout == "bhsd" else result.transpose(0, 2, 1, 3)


@pytest.mark.parametrize("name", list(CASES))
def test_a_case_reads_as_the_problem_it_is(name: str) -> None:
    whole = read_whole(CASES[name])
    given, expected = whole.operands()
    result = attend(whole.partition.spec, given)
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=1e-4, atol=1e-6)


def test_the_scale_is_that_of_the_head_unless_given() -> None:
    plain = read_case(CASES["attention-float16-2x12x128x64"]).spec
    assert plain.scalars == (1 / 8,)
    assert read_case(CASES["attention-float16-odd"]).spec.scalars == pytest.approx((0.3,))


@pytest.mark.parametrize(
    ("because", "extents", "dtype", "attrs"),
    [
        ("multiple of 4", (1, 2, 8, 8, 30), "float16", {}),
        ("multiple of 4", (1, 2, 8, 8, 260), "float16", {}),
        ("bottom right", (1, 2, 9, 8, 32), "float16", {"causal_mask": "BottomRight"}),
        (
            "sliding-window",
            (1, 2, 8, 8, 32),
            "float16",
            {"window_size": 3, "causal_mask": "TopLeft"},
        ),
        ("float64", (1, 2, 8, 8, 32), "float64", {}),
        ("of 4 is needed", (1, 2, 8, 6, 32), "float32", {"bias": (1, 2, 8, 6)}),
        ("70000 heads", (1, 70000, 1, 1, 4), "float16", {}),
    ],
)
def test_refusals_say_why(
    because: str, extents: tuple[int, ...], dtype: str, attrs: dict[str, Any]
) -> None:
    pattern = "attention_bias" if "bias" in attrs else "attention"
    assert because in refusal(pattern, attention(extents, dtype, **attrs))


def test_chains_that_are_no_attention_are_refused() -> None:
    def body(axis: int, axes: list[int]) -> tvm.IRModule:
        def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
            scores = emit(op.matmul(q, emit(op.permute_dims(k, axes))))
            return op.matmul(emit(op.nn.softmax(scores, axis=axis)), v)

        return graph([(2, 4, 16, 16)] * 3, build, "float16")

    assert "softmax over axis 2" in refusal("attention_chain", body(2, [0, 1, 3, 2]))
    assert "last axis" in refusal("attention_chain", body(-1, [0, 1, 2, 3]))
    assert refusal("attention_chain", body(-1, [0, 1, 3, 2])) == ""


def test_parts_that_are_cut_otherwise_are_read_one_by_one() -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        parts = emit(op.split(x, 3, axis=1))
        shaped = [emit(op.reshape(emit(parts[i]), (2, 8, 2, 16))) for i in range(3)]
        return op.nn.attention(*shaped)

    module = graph([(2, 24, 32)], body, "float16")
    assert "not of the last" in refusal("attention_of_parts", module)
    (partition,) = read_module(CudaCase("p", "cutlass", "cutlass.attention", module))
    assert partition.spec.layout == "bshd"


def test_scores_that_someone_else_reads_are_not_swallowed() -> None:
    def body(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        weights = emit(op.nn.softmax(scores, axis=-1))
        return op.add(emit(op.matmul(weights, v)), emit(op.sum(weights, axis=[-1], keepdims=True)))

    module = graph([(1, 2, 16, 16)] * 3, body, "float16")
    taken = read_module(CudaCase("leak", "cutlass", "cutlass.matmul", module))
    assert {partition.spec.operator for partition in taken} == {"matmul"}


def offered(
    extents: tuple[int, ...],
    options: CutlassOptions | None = None,
    dtype: str = "float16",
    **attrs: Any,
) -> list[AttentionConfiguration]:
    name = "cutlass.attention_bias" if "bias" in attrs else "cutlass.attention"
    options = options or CutlassOptions()
    case = CudaCase("a", "cutlass", name, attention(extents, dtype, **attrs))
    made = AttentionFamily().configurations(read_case(case).spec, options, "sm_90a")
    found = [
        configuration for configuration in made if isinstance(configuration, AttentionConfiguration)
    ]
    assert len(found) == len(made) and len(set(found)) == len(found)
    assert all(configuration.max_dim >= extents[4] for configuration in found)
    return found


def test_blocks_follow_the_head_and_the_number_of_queries() -> None:
    older = CutlassOptions(sm=80)
    first = offered((1, 2, 128, 128, 64), older)[0]
    assert (first.kind, first.queries, first.keys) == ("sm80", 64, 64)
    assert offered((1, 2, 128, 128, 96), older)[0].keys == 128
    assert offered((1, 2, 1, 128, 64), older)[0].queries == 32
    assert offered((1, 2, 64, 64, 256), older)[0].max_dim > 256
    assert offered((1, 2, 64, 64, 64), older)[0].aligned
    assert not offered((1, 2, 64, 64, 36), older)[0].aligned
    assert offered((1, 2, 64, 64, 36), older, "float32")[0].aligned


def test_hoppers_blocks_waste_little() -> None:
    def blocks(extents: tuple[int, ...], **attrs: Any) -> list[tuple[int, int]]:
        found = offered(extents, **attrs)
        assert {(c.kind, c.is_quick) for c in found} == {("sm90", True)}
        return [(c.queries, c.keys) for c in found]

    assert blocks((1, 2, 128, 128, 64)) == [(64, 128), (64, 64), (128, 128)]
    # All of 77 keys, and of 257 keys a half, with less than 16 more.
    assert (64, 80) in blocks((1, 2, 128, 77, 64)) and (64, 144) in blocks((1, 2, 257, 257, 64))
    assert (192, 128) in blocks((1, 2, 1024, 1024, 64))
    assert (192, 128) not in blocks((1, 2, 1024, 1024, 64), bias=(1, 1, 1, 1024))
    assert {queries for queries, _ in blocks((1, 2, 1, 512, 128))} == {64}
    assert blocks((1, 2, 512, 512, 200)) == [(128, 64)]
    assert blocks((1, 2, 64, 49, 32), bias=(1, 2, 64, 49)) == [(64, 64)]


@pytest.mark.parametrize(
    ("kind", "extents", "dtype", "attrs"),
    [
        ("sm90", (1, 2, 256, 512, 40), "bfloat16", {"causal_mask": "TopLeft"}),
        ("sm90", (6, 3, 49, 49, 32), "float16", {"bias": (1, 3, 49, 49)}),
        ("sm90", (1, 2, 1, 7, 8), "float16", {}),
        ("sm80", (1, 2, 512, 512, 60), "float16", {}),
        ("sm80", (1, 2, 512, 512, 64), "float32", {}),
    ],
)
def test_hoppers_kernel_is_offered_where_it_fits(
    kind: str, extents: tuple[int, ...], dtype: str, attrs: dict[str, Any]
) -> None:
    assert {c.kind for c in offered(extents, None, dtype, **attrs)} == {kind}


def test_only_hoppers_kernel_takes_a_bias_of_any_length_and_long_heads_by_head() -> None:
    windows = attention((6, 3, 49, 49, 32), "float16", bias=(1, 3, 49, 49))
    long_heads = chain((1, 2, 72, 90, 160), "float16")
    for pattern, module in (("attention_bias", windows), ("attention_chain", long_heads)):
        assert refusal(pattern, module) == ""
        assert refusal(pattern, module, {"sm": 80}) != ""


def test_equal_kernels_have_equal_text() -> None:
    family, options = AttentionFamily(), CutlassOptions()
    specs = [
        read_case(CudaCase("a", "cutlass", "cutlass.attention", module)).spec
        for module in (
            attention((1, 2, 128, 128, 64), "float16"),
            attention((3, 12, 77, 100, 48), "float16", scale=0.5, causal_mask="TopLeft"),
        )
    ]
    one, other = (family.render(s, family.configurations(s, options, "sm_90a")[0]) for s in specs)
    assert one == other
    by_head = read_case(
        CudaCase("c", "cutlass", "cutlass.attention_chain", chain((1, 2, 64, 64, 64), "float16"))
    ).spec
    assert family.render(by_head, family.configurations(by_head, options, "sm_90a")[0]) != one
    assert math.isclose(by_head.scalars[0], 1.0)
