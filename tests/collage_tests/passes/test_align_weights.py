"""Weights whose rows wide loads cannot take reach the libraries by columns; all else is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import tvm
from tvm import ir, relax
from tvm.relax import op

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.compiling import cuda_target, partition_case
from benchmarks.gpu.cases.cublas._products import Chain, dense
from collage.backends.cublas.options import CublasOptions
from collage.backends.cublas.partition import read_partition
from collage.backends.relax.calls.layouts import permutation
from collage.backends.relax.modules.lift_constants import lift_constants
from collage.cost.reference import evaluate
from collage.passes.align_weights import align_weights
from collage.testing.graphs import constant, graph
from tests.backends_tests.cutlass.reading import read_case


def layer(
    inner: int, columns: int, dtype: str = "float16", chain: Chain | None = None
) -> tvm.IRModule:
    """A dense layer with constant weights, on three rows."""
    return dense((3, inner), columns, chain or Chain(), dtype, seed=1)


def lowered(module: tvm.IRModule, pattern: str = "cublas.matmul") -> tvm.IRModule:
    """What a search would hand to the backend of a pattern."""
    case = CudaCase("case", pattern.partition(".")[0], pattern, module)
    return partition_case(case, cuda_target()).module


def partitions(mod: tvm.IRModule) -> list[relax.Function]:
    """The functions of libraries."""
    return [f for f in mod.functions.values() if f.attrs is not None and "Codegen" in f.attrs]


def values(function: relax.Function) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Bindings, those of inner functions after their own."""
    for binding in (b for block in function.body.blocks for b in block.bindings):
        yield binding.var, binding.value
        if isinstance(binding.value, relax.Function):
            yield from values(binding.value)


def right_operand(mod: tvm.IRModule) -> relax.Expr:
    """What the only product of a library takes on the right, seen through its variable."""
    (function,) = partitions(mod)
    bound = dict(values(function))
    (product,) = [
        v for v in bound.values() if isinstance(v, relax.Call) and v.op == ir.Op.get("relax.matmul")
    ]
    return bound.get(product.args[1], product.args[1])


def weights_of(module: tvm.IRModule) -> np.ndarray:
    """The right operand of a module's first operator."""
    (block,) = module["main"].body.blocks
    array: np.ndarray = block.bindings[0].value.args[1].value.numpy()
    return array


UNALIGNED = [(64, 97, "float16"), (8, 50, "bfloat16"), (36, 51, "float32"), (768, 1, "float16")]


@pytest.mark.parametrize(("inner", "columns", "dtype"), UNALIGNED)
@pytest.mark.parametrize("pattern", ["cublas.matmul", "cutlass.matmul"])
def test_unaligned_rows_are_stored_by_columns(
    inner: int, columns: int, dtype: str, pattern: str
) -> None:
    module = layer(inner, columns, dtype)
    operand = right_operand(lowered(module, pattern))
    assert permutation(operand) == [1, 0]
    stored = operand.args[0]
    assert isinstance(stored, ir.GenericConst)
    assert str(stored.value.dtype) == dtype
    # Bit by bit: numpy compares no bfloat16.
    turned = np.ascontiguousarray(weights_of(module).T)
    assert stored.value.numpy().shape == (columns, inner)
    assert stored.value.numpy().tobytes() == turned.tobytes()


LEFT_ALONE = {
    "aligned rows": layer(64, 96),
    "aligned rows of float32": layer(36, 52, "float32"),
    "unaligned columns": layer(50, 97),
    "unaligned columns of bfloat16": layer(4, 97, "bfloat16"),
    "no constant": dense((3, 64), 97, Chain(), "float16", seed=1, variable_weights=True),
    "no matrix": graph(
        [[2, 3, 64]],
        lambda emit, x: op.matmul(x, constant(2, 64, 97, dtype="float16")),
        "float16",
    ),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_all_else_is_left_alone(what: str) -> None:
    mod = lowered(LEFT_ALONE[what])
    assert permutation(right_operand(mod)) is None
    (function,) = partitions(mod)
    assert align_weights(function) is function


def test_backends_that_do_not_ask_get_the_weights_as_they_are() -> None:
    module = layer(64, 97, chain=Chain((97,)))
    operand = right_operand(lowered(module, "cudnn.matmul_bias"))
    assert isinstance(operand, ir.GenericConst)
    assert operand.value.numpy().shape == (64, 97)


def test_a_second_time_changes_nothing() -> None:
    (function,) = partitions(lowered(layer(64, 97)))
    assert align_weights(function) is function


def test_the_module_computes_what_it_did() -> None:
    chain = Chain((97,), False, "relu")
    module = layer(64, 97, "float32", chain)
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    mod = lowered(module, "cublas.matmul_bias_relu")
    assert permutation(right_operand(mod)) == [1, 0]
    (expected,) = evaluate(module, [x])
    (made,) = evaluate(mod, [x])
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


def test_cublas_is_asked_for_a_transposed_operand_with_aligned_columns() -> None:
    mod = lowered(layer(64, 97, chain=Chain((97,), False, "relu")), "cublas.matmul_bias_relu")
    (function,) = partitions(lift_constants(mod, {"cublas"}))
    partition = read_partition(function, CublasOptions())
    problem = partition.problem
    # Seen by columns: the weights are cublasLt's A, of which it takes the transpose.
    assert (problem.transpose_a, problem.lda, problem.ldb, problem.ldd) == (True, 64, 64, 97)
    assert (partition.a, partition.b, partition.bias) == (1, 0, 2)


@pytest.mark.parametrize("bias", [None, 97])
def test_cutlass_is_asked_for_columns_in_every_form(bias: int | None) -> None:
    chain = Chain((bias,), False, "relu") if bias else Chain()
    name = f"cutlass.matmul{chain.suffix}"
    case = CudaCase("case", "cutlass", name, layer(64, 97, chain=chain))
    spec = read_case(case).spec
    assert spec.layout == "rc"
    assert spec.inputs[1].shape == (1, 97, 64)
    chain = dataclasses.replace(chain, bias=(96,)) if bias else chain
    aligned = dataclasses.replace(case, given=layer(64, 96, chain=chain))
    assert read_case(aligned).spec.layout == "rr"
