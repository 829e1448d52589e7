"""Matrix products of the ``cutlass`` backend: what is taken and read, what is refused and why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases import cases_of
from benchmarks.gpu.cases.cutlass.cases import dense
from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cutlass.families._base import KernelSpec, alignment
from collage.backends.cutlass.families.gemm.patterns import Form, forms
from collage.backends.cutlass.families.gemm.problem import Operand, plan
from collage.backends.cutlass.families.gemm.render import (
    ACTIVATION_CODES,
    LAST_LIGHT,
    RESIDUAL_CODES,
)
from collage.backends.cutlass.library import TEMPLATES
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.cutlass.reading import read_whole, refusal

Array = NDArray[np.float64]

# Cases share the reading code where only the epilogue differs; all of them are cheap here.
CASES = [name for name, case in cases_of("cutlass").items() if "bfloat16" not in name]


def _erf(x: Array) -> Array:
    return np.vectorize(__import__("math").erf)(x)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}


def as_the_kernel_reads(spec: KernelSpec, given: list[Array]) -> Array:
    """What a kernel computes from flat memory, by the integers it is handed and nothing else."""
    m, n, k, batch, lda, ldb, stride_a, stride_b, *codes = spec.sizes
    bias, activation, residual, after = codes
    a, b = (np.ascontiguousarray(x).reshape(-1) for x in given[:2])
    steps_a = (lda, 1) if spec.layout[0] == "r" else (1, lda)
    steps_b = (ldb, 1) if spec.layout[1] == "r" else (1, ldb)

    def view(flat: Array, shape: tuple[int, ...], steps: tuple[int, ...]) -> Array:
        last = sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))
        assert last < flat.size, "the kernel would read beyond the operand"
        return as_strided(flat, shape, [8 * step for step in steps])

    x = view(a, (batch, m, k), (stride_a, *steps_a)) @ view(b, (batch, k, n), (stride_b, *steps_b))
    others = iter(given[2:])
    if bias:
        x = x + next(others).reshape(n)
    names = dict(zip(ACTIVATION_CODES.values(), ACTIVATION_CODES, strict=True))
    x = ACTIVATIONS[names[activation]](x)
    if residual == RESIDUAL_CODES["add"]:
        x = x + next(others).reshape(batch, m, n)
    elif residual == RESIDUAL_CODES["multiply"]:
        x = x * next(others).reshape(batch, m, n)
    assert next(others, None) is None
    return ACTIVATIONS[names[after]](x)


@pytest.mark.parametrize("name", CASES)
def test_kernel_arguments_compute_the_graph(name: str) -> None:
    case = cases_of("cutlass")[name]
    whole = read_whole(case)
    partition = whole.partition
    given, wanted = whole.operands()
    for array, tensor in zip(given, partition.spec.inputs, strict=True):
        assert array.size == tensor.size
    assert wanted.size == partition.spec.output.size
    result = as_the_kernel_reads(partition.spec, given)
    # The graph's 1/6 of a hard-swish is a float16; its erf has its factor in float32.
    tolerance = 2e-3 if "hardswish" in name else 1e-6
    np.testing.assert_allclose(
        result.reshape(-1), wanted.reshape(-1), rtol=tolerance, atol=tolerance
    )


def test_codes_are_those_of_the_header() -> None:
    header = (TEMPLATES / "collage_activation.h").read_text(encoding="utf-8")
    names = {"": "kIdentity", "relu": "kRelu", "hardswish": "kHardSwish", "gelu": "kGelu"}
    names |= {"gelu_tanh": "kGeluTanh", "silu": "kSilu", "sigmoid": "kSigmoid", "relu6": "kRelu6"}
    assert names.keys() == ACTIVATION_CODES.keys()
    for activation, code in ACTIVATION_CODES.items():
        assert f"{names[activation]} = {code}," in header
    last = next(name for name, code in ACTIVATION_CODES.items() if code == LAST_LIGHT)
    assert f"kLastLight = {names[last]}," in header
    assert "kNoResidual = 0, kAddResidual = 1, kMultiplyResidual = 2" in header


def test_names_are_unique_and_say_what_they_take() -> None:
    names = [form.name for form in forms()]
    assert len(names) == len(set(names))
    assert "cutlass.matmul_bias_gelu_tanh_add" in names
    assert Form(transposed_b=True).name == "cutlass.matmul_transposed_b"


PLANS = [
    # (lhs, transposed, rhs, transposed, result) -> (m, n, k, batch, lda, ldb, strides, layout)
    ("dense", (2, 7, 5), False, (5, 3), False, (2, 7, 3), (14, 3, 5, 1, 5, 3, 0, 0, "rr")),
    ("batched", (4, 7, 5), False, (4, 5, 3), False, (4, 7, 3), (7, 3, 5, 4, 5, 3, 35, 15, "rr")),
    ("two axes", (2, 2, 7, 5), False, (2, 2, 5, 3), False, (2, 2, 7, 3),
     (7, 3, 5, 4, 5, 3, 35, 15, "rr")),
    ("keys", (4, 7, 5), False, (4, 3, 5), True, (4, 7, 3), (7, 3, 5, 4, 5, 5, 35, 15, "rc")),
    ("transposed left, shared right", (4, 5, 7), True, (5, 3), False, (4, 7, 3),
     (7, 3, 5, 4, 7, 3, 35, 0, "cr")),
    ("shared left", (7, 5), False, (4, 5, 3), False, (4, 7, 3), (7, 3, 5, 4, 5, 3, 0, 15, "rr")),
    ("leading one", (1, 4, 7, 5), False, (4, 5, 3), False, (1, 4, 7, 3),
     (7, 3, 5, 4, 5, 3, 35, 15, "rr")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("lhs", "left", "rhs", "right", "result", "wanted"),
    [row[1:] for row in PLANS],
    ids=[row[0] for row in PLANS],
)
def test_plan(
    lhs: tuple[int, ...],
    left: bool,
    rhs: tuple[int, ...],
    right: bool,
    result: tuple[int, ...],
    wanted: tuple[object, ...],
) -> None:
    p = plan(Operand(lhs, left), Operand(rhs, right), result, "float16")
    strides = (p.batch_stride_a, p.batch_stride_b)
    assert (p.m, p.n, p.k, p.batch, p.lda, p.ldb, *strides, p.layout) == wanted


def test_partly_broadcast_batches_are_refused() -> None:
    with pytest.raises(UnsupportedProblemError, match=r"\(2, 3\) and \(3,\) are broadcast"):
        plan(Operand((2, 3, 7, 5)), Operand((3, 5, 4)), (2, 3, 7, 4), "float16")


@pytest.mark.parametrize(
    ("extent", "bits", "width"), [(768, 16, 8), (12, 16, 4), (77, 16, 1), (12, 32, 4), (6, 32, 2)]
)
def test_alignment(extent: int, bits: int, width: int) -> None:
    assert alignment(extent, bits) == width


def _two(lhs: list[int], rhs: list[int], dtype: str = "float16") -> tvm.IRModule:
    return graph([lhs, rhs], lambda emit, a, b: op.matmul(a, b), dtype)


def test_refusals_name_their_reason() -> None:
    assert refusal("matmul", _two([4, 5], [5, 6])) == ""
    assert "is no matrix" in refusal("matmul", _two([5], [5, 6]))
    assert "float64" in refusal("matmul", _two([4, 5], [5, 6], "float64"))
    assert "is empty" in refusal("matmul", _two([0, 5], [5, 6]))
    assert "65537 matrices" in refusal("matmul", _two([65537, 1, 1], [65537, 1, 1]))

    wide = graph(
        [[4, 8], [8, 8]], lambda emit, a, b: op.matmul(a, b, out_dtype="float32"), "float16"
    )
    assert "all must have the same one" in refusal("matmul", wide)

    def rotated(emit: Emit, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        return op.matmul(a, emit(op.permute_dims(b, [2, 0, 1])))

    turned = graph([[5, 4, 3], [3, 6, 5]], rotated, "float16")
    assert "only the last two may be swapped" in refusal("matmul_transposed_b", turned)


def _after(make: Callable[[Emit, relax.Expr], relax.Expr]) -> tvm.IRModule:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        return make(emit, emit(op.matmul(x, constant(16, 8, dtype="float16"))))

    return graph([[4, 16]], body, "float16")


def test_epilogues_that_do_not_fit_are_refused() -> None:
    row = _after(lambda emit, y: op.add(y, constant(4, 1, dtype="float16")))
    assert "is not one value per column" in refusal("matmul_bias", row)
    single = _after(lambda emit, y: op.add(y, constant(1, dtype="float16")))
    assert "a bias of one element" in refusal("matmul_bias", single)
    broadcast = _after(lambda emit, y: op.multiply(y, constant(8, dtype="float16")))
    assert "is broadcast" in refusal("matmul_multiply", broadcast)

    def own_gate(emit: Emit, y: relax.Expr) -> relax.Expr:
        biased = emit(op.add(y, constant(8, dtype="float16")))
        return op.multiply(emit(op.sigmoid(biased)), biased)

    assert "computed by the chain" in refusal("matmul_bias_sigmoid_multiply", _after(own_gate))
    doubled = _after(lambda emit, y: op.add(y, y))
    assert "computed by the chain" in refusal("matmul_add", doubled)

    def leaky_gate(emit: Emit, y: relax.Expr) -> relax.Expr:
        scaled = emit(op.multiply(y, relax.const(np.float16(0.2))))
        gate = emit(op.clip(emit(op.add(scaled, relax.const(np.float16(0.5)))), 0, 1))
        return op.multiply(y, gate)

    reason = refusal("matmul_hardswish", _after(leaky_gate))
    assert "scale is 0.199951, not 0.166667" in reason and "hard-swish" in reason


def test_residual_on_either_side_is_the_same_problem() -> None:
    def left(emit: Emit, x: relax.Expr, r: relax.Expr) -> relax.Expr:
        y = emit(op.matmul(x, constant(16, 8, dtype="float16")))
        return op.add(r, y)

    assert refusal("matmul_add", graph([[4, 16], [4, 8]], left, "float16")) == ""
    plain = dense(Form(residual="add"), (4, 16), (16, 8), "float16")
    assert refusal("matmul_add", plain) == ""


def test_residual_may_be_computed_before_or_be_the_left_operand() -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        before = emit(op.nn.relu(x))
        return op.add(emit(op.matmul(before, constant(8, 8, dtype="float16"))), before)

    assert refusal("matmul_add", graph([[4, 8]], body, "float16")) == ""
