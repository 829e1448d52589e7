"""The ``cutlass`` backend's norms: what is taken and read, and how rows are spread over threads."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases import CudaCase, cases_of
from benchmarks.gpu.cases.cutlass.norm import norm
from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cutlass.families.norm.family import (
    MAX_CHUNKS,
    NormFamily,
    row_configurations,
)
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.cutlass.reading import read_case, read_module, read_whole, refusal

CASES = cases_of("cutlass_norm")


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if "bfloat16" not in n])
def test_a_case_reads_as_the_problem_it_is(name: str) -> None:
    case = CASES[name]
    whole = read_whole(case)
    spec = whole.partition.spec
    given, expected = whole.operands()
    rows, columns = spec.sizes
    data = given.pop(0).reshape(rows, columns)
    if spec.epilogue == "add":
        data = data + given.pop(0).reshape(rows, columns)
    if spec.operator == "layer_norm":
        data = data - data.mean(axis=1, keepdims=True)
    data = data / np.sqrt(np.square(data).mean(axis=1, keepdims=True) + spec.scalars[0])
    data = data * given.pop(0)
    if spec.operator == "layer_norm":
        data = data + given.pop(0)
    assert not given
    np.testing.assert_allclose(data.reshape(expected.shape), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in CASES if "bfloat16" in n])
def test_bfloat16_cases_are_taken(name: str) -> None:
    assert read_case(CASES[name]).spec.dtype == "bfloat16"


def test_several_last_axes_are_one_row() -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        scale, shift = constant(4, 6, dtype="float16"), constant(4, 6, dtype="float16")
        return op.nn.layer_norm(x, scale, shift, axes=[-2, -1])

    module = graph([(3, 4, 6)], body, "float16")
    spec = read_case(CudaCase("axes", "cutlass", "cutlass.layer_norm", module)).spec
    assert spec.sizes == (3, 24)


def test_a_sum_that_is_used_elsewhere_is_left_alone() -> None:
    def body(emit: Emit, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        total = emit(op.add(x, y))
        parameters = constant(32, dtype="float16"), constant(32, dtype="float16")
        return op.add(total, emit(op.nn.layer_norm(total, *parameters, axes=[-1])))

    module = graph([(3, 32), (3, 32)], body, "float16")
    (partition,) = read_module(CudaCase("sum", "cutlass", "cutlass.layer_norm", module))
    assert partition.spec.epilogue == "none"


def test_a_summand_that_is_broadcast_stays_outside() -> None:
    def body(emit: Emit, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return op.nn.rms_norm(emit(op.add(x, y)), constant(32, dtype="float16"), axes=[-1])

    module = graph([(3, 32), (1, 32)], body, "float16")
    assert "broadcast" in refusal("add_rms_norm", module)
    assert refusal("rms_norm", module) == ""


@pytest.mark.parametrize(
    ("because", "shape", "axes", "dtype"),
    [
        ("not the last ones", (3, 4, 6), [1], "float16"),
        ("not the last ones in their order", (3, 4, 6), [2, 1], "float16"),
        ("float64", (3, 6), [-1], "float64"),
        ("rows of one element", (3, 1), [-1], "float16"),
        ("do not fit", (3, 200000), [-1], "float16"),
    ],
)
def test_refusals_say_why(
    because: str, shape: tuple[int, ...], axes: list[int], dtype: str
) -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        extents = [shape[axis] for axis in axes]
        return op.nn.rms_norm(x, constant(*extents, dtype=dtype), axes=axes)

    assert because in refusal("rms_norm", graph([shape], body, dtype))


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 5000), st.integers(2, 70000), st.sampled_from([16, 32]))
def test_every_element_of_a_row_has_one_place(rows: int, columns: int, bits: int) -> None:
    try:
        offered = row_configurations(rows, columns, bits)
    except UnsupportedProblemError:
        assert columns > 1024 * MAX_CHUNKS
        return
    assert 1 <= len(offered) <= 4
    for made in offered:
        assert columns % made.vector == 0 and made.vector * bits <= 128
        assert made.threads * made.vector * made.chunks >= columns
        assert made.threads * made.vector * (made.chunks - 1) < columns
        assert made.threads * made.rows <= 1024
        # Rows that share a block must not meet a barrier.
        assert made.rows == 1 or made.threads == 32
        assert made.chunks <= MAX_CHUNKS


def test_many_rows_take_a_warp_each_and_few_rows_a_block() -> None:
    many, few = row_configurations(16384, 768, 16)[0], row_configurations(16, 768, 16)[0]
    assert many.threads == 32 and few.threads > 32


def test_units_do_not_depend_on_the_number_of_rows() -> None:
    family = NormFamily()
    one, other = (
        read_case(
            CudaCase("n", "cutlass", "cutlass.layer_norm", norm("layer_norm", shape, "float16"))
        )
        for shape in ((2, 768), (5, 3, 768))
    )
    made = row_configurations(2, 768, 16)[0]
    assert family.render(one.spec, made) == family.render(other.spec, made)
    assert one.spec != other.spec


def test_a_chain_of_primitive_operators_is_not_taken_for_a_norm() -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        return op.subtract(x, emit(op.mean(x, axis=[-1], keepdims=True)))

    module: tvm.IRModule = graph([(3, 32)], body, "float16")
    with pytest.raises(AssertionError, match="does not match"):
        refusal("layer_norm", module)
