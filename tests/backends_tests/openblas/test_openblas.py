"""OpenBLAS against the contract and numpy, through every way a product can lie in memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BackendTarget, BuildContext, ExternalBackend
from collage.backends.contract.registry import get_backend
from collage.backends.openblas.options import OpenBLASOptions
from collage.backends.openblas.patterns import ACTIVATIONS, pattern_table
from collage.cost.reference import evaluate, largest_error
from collage.testing.backend_cases import CompiledCases, PatternCase, Refusal, constants_of
from collage.testing.backend_contract import BackendContract
from collage.testing.graphs import constant, graph
from tests.object_cache import cache_with_objects

ACTIVATION_OPS = {
    "relu": op.nn.relu,
    "gelu": op.nn.gelu,
    "gelu_tanh": op.nn.gelu_tanh,
    "tanh": op.tanh,
    "sigmoid": op.sigmoid,
}


def dense(
    x_shape: tuple[int, ...],
    columns: int,
    *,
    bias: tuple[int, ...] | None = None,
    activation: str | None = None,
) -> tvm.IRModule:
    """``activation(x @ constant + bias)``."""

    def body(emit, x):  # type: ignore[no-untyped-def]
        scale = x_shape[-1] ** -0.5
        y = emit(op.matmul(x, constant(x_shape[-1], columns, scale=scale)))
        if bias is not None:
            y = emit(op.add(y, constant(*bias)))
        return y if activation is None else ACTIVATION_OPS[activation](y)

    return graph([x_shape], body)


def product(
    lhs: tuple[int, ...],
    rhs: tuple[int, ...],
    *,
    lhs_axes: list[int] | None = None,
    rhs_axes: list[int] | None = None,
    result_axes: list[int] | None = None,
) -> tvm.IRModule:
    """A product of two inputs, each behind an optional ``permute_dims``, and one after it."""

    def body(emit, a, b):  # type: ignore[no-untyped-def]
        a = a if lhs_axes is None else emit(op.permute_dims(a, lhs_axes))
        b = b if rhs_axes is None else emit(op.permute_dims(b, rhs_axes))
        y = op.matmul(a, b)
        return y if result_axes is None else op.permute_dims(emit(y), result_axes)

    return graph([lhs, rhs], body)


HEADS_FIRST = [0, 2, 1, 3]
KEYS = [0, 2, 3, 1]
"""``permute_dims`` of attention: (batch, tokens, heads, size) to (batch, heads, size, tokens)."""

PERMUTED = {
    "lhs": product((2, 7, 3, 5), (2, 3, 5, 6), lhs_axes=HEADS_FIRST),
    "rhs": product((2, 3, 7, 5), (2, 6, 3, 5), rhs_axes=KEYS),
    "result": product((2, 3, 7, 6), (2, 3, 6, 5), result_axes=HEADS_FIRST),
    "lhs_rhs": product((2, 7, 3, 5), (2, 6, 3, 5), lhs_axes=HEADS_FIRST, rhs_axes=KEYS),
    "lhs_result": product((5, 7), (5, 6), lhs_axes=[1, 0], result_axes=[1, 0]),
    "rhs_result": product(
        (2, 3, 7, 6), (2, 6, 3, 5), rhs_axes=HEADS_FIRST, result_axes=HEADS_FIRST
    ),
    "lhs_rhs_result": product(
        (2, 7, 3, 5), (2, 6, 3, 5), lhs_axes=HEADS_FIRST, rhs_axes=KEYS, result_axes=HEADS_FIRST
    ),
}


class TestOpenBLASContract(BackendContract):
    backend_name = "openblas"

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        cases = [
            PatternCase("openblas.matmul", dense((9, 40), 48)),
            PatternCase("openblas.matmul_bias", dense((2, 9, 40), 30, bias=(30,))),
        ]
        for where, mod in PERMUTED.items():
            cases.append(PatternCase(f"openblas.matmul_permuted_{where}", mod))
        for activation in ACTIVATIONS:
            bare = dense((9, 40), 33, activation=activation)
            biased = dense((9, 40), 33, bias=(33,), activation=activation)
            cases.append(PatternCase(f"openblas.matmul_{activation}", bare))
            cases.append(PatternCase(f"openblas.matmul_bias_{activation}", biased))
        return cases

    @pytest.fixture(scope="class")
    @classmethod
    def parallel_case(cls) -> PatternCase:
        return PatternCase("openblas.matmul_bias", dense((256, 512), 512, bias=(512,)))

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        def on_rows(emit, x):  # type: ignore[no-untyped-def]
            return op.add(emit(op.matmul(x, constant(8, 6))), constant(4, 1))

        def on_vector(emit, x):  # type: ignore[no-untyped-def]
            return op.add(emit(op.matmul(x, constant(8))), constant(4))

        def double(emit, x):  # type: ignore[no-untyped-def]
            return op.matmul(x, constant(8, 6, dtype="float64"))

        scattered = product((3, 2, 7, 5), (2, 5, 3, 4), lhs_axes=[1, 3, 2, 0])
        return [
            Refusal("openblas.matmul_bias", graph([(4, 8)], on_rows), "per channel"),
            Refusal("openblas.matmul_bias", graph([(4, 8)], on_vector), "vector"),
            Refusal("openblas.matmul", graph([(4, 8)], double, "float64"), "float64"),
            Refusal("openblas.matmul", dense((0, 8), 6), "empty"),
            Refusal("openblas.matmul_permuted_lhs", scattered, "left operand"),
        ]


SHAPES = {
    "vector times matrix": dense((40,), 12),
    "one row": dense((1, 300), 500, bias=(500,)),
    "one row, scalar bias": dense((1, 300), 500, bias=(1,)),
    "one row, bare": dense((1, 17), 3),
    "one column": dense((50, 70), 1, bias=(1,), activation="tanh"),
    "one column of a batch": dense((3, 50, 70), 1),
    "one by one": dense((1, 70), 1, bias=(1,)),
    "one inner": product((5, 1), (1, 7)),
    "matrix times vector": product((5, 9), (9,)),
    "batch times vector": product((4, 5, 9), (9,)),
    "vector times batch": product((9,), (4, 9, 3)),
    "dot": product((9,), (9,)),
    "batch": product((6, 5, 9), (6, 9, 4)),
    "batch of rows": product((6, 1, 9), (6, 9, 40)),
    "batch of columns": product((6, 40, 9), (6, 9, 1)),
    "rows of a batch": product((6, 1, 9), (9, 40)),
    "broadcast right": product((2, 3, 5, 9), (3, 9, 4)),
    "broadcast left": product((5, 9), (2, 3, 9, 4)),
    "broadcast both": product((2, 1, 5, 9), (1, 3, 9, 4)),
    "broadcast middle": product((2, 3, 4, 5, 9), (2, 1, 4, 9, 6)),
    "bias of full rank": dense((2, 6, 20), 10, bias=(1, 1, 10), activation="relu"),
    "tall": product((999, 17), (17, 5)),
    "wide": product((3, 129), (129, 1001)),
    "parallel rows": product((511, 130), (130, 64)),
    "parallel columns": product((33, 300), (300, 515)),
    "parallel batch": product((5, 40, 130), (5, 130, 64)),
    "parallel gemv": dense((1, 700), 1003, bias=(1003,), activation="gelu"),
}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> CompiledCases:
    return compile_all(tmp_path_factory.mktemp("shapes"), list(SHAPES.values()), OpenBLASOptions())


def compile_all(
    folder: Path, mods: list[tvm.IRModule], options: OpenBLASOptions, num_threads: int = 2
) -> CompiledCases:
    backend = get_backend("openblas")
    assert isinstance(backend, ExternalBackend)
    target = BackendTarget("openblas", tvm.target.Target("llvm"), options)
    context = BuildContext(cache_with_objects(folder), folder / "work", num_threads=num_threads)
    cases = [PatternCase("openblas.matmul", mod) for mod in mods]
    library = BackendContract.compile(backend, target, context, cases, "library")
    return CompiledCases(library, cases)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_agree_with_numpy(name: str, shapes: CompiledCases) -> None:
    index = list(SHAPES).index(name)
    case = shapes.cases[index]
    inputs = case.inputs(np.random.default_rng())
    (expected,) = evaluate(case.mod, inputs)
    (actual,) = shapes.run(index, inputs)
    assert actual.shape == expected.shape
    assert largest_error(actual, expected) < 1e-5


@pytest.mark.parametrize("num_threads", [1, 3, 16])
def test_any_number_of_threads_gives_the_same_values(num_threads: int, tmp_path: Path) -> None:
    mods = [SHAPES[name] for name in SHAPES if name.startswith("parallel")]
    compiled = compile_all(tmp_path, mods, OpenBLASOptions(), num_threads)
    for index, case in enumerate(compiled.cases):
        inputs = case.inputs(np.random.default_rng())
        (expected,) = evaluate(case.mod, inputs)
        assert largest_error(compiled.run(index, inputs)[0], expected) < 1e-5


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_exact_over_their_range(activation: str, tmp_path: Path) -> None:
    identity = relax.const(np.eye(1024, dtype=np.float32))
    mod = graph(
        [(9, 1024)], lambda emit, x: ACTIVATION_OPS[activation](emit(op.matmul(x, identity)))
    )
    compiled = compile_all(tmp_path, [mod], OpenBLASOptions())
    spread = np.concatenate(
        [
            np.linspace(-12, 12, 1024 * 8 - 8),
            [0.0, -0.0, 1e-30, -1e-30, 88.0, -88.0, 1e4, -1e4],
            np.geomspace(1e-6, 1.0, 1024),
        ]
    )
    x = spread.astype(np.float32).reshape(9, 1024)
    (expected,) = evaluate(mod, [x])
    (actual,) = compiled.run(0, [x])
    error = np.abs(actual.astype(np.float64) - expected)
    # Relative to the value where it is large, to 1 where it is small.
    assert np.max(error / np.maximum(np.abs(expected), 1.0)) < 1e-6


def test_weights_of_a_single_row_are_stored_transposed_on_request(tmp_path: Path) -> None:
    mod = dense((1, 64), 96)
    (weights,) = constants_of(mod)
    for transposed in (True, False):
        options = OpenBLASOptions(transpose_vector_weights=transposed)
        compiled = compile_all(tmp_path / str(transposed), [mod], options)
        stored = compiled.library.read_bytes()
        assert (stored.count(weights.tobytes()) == 0) is transposed
        assert (stored.count(np.ascontiguousarray(weights.T).tobytes()) == 1) is transposed
        inputs = compiled.cases[0].inputs(np.random.default_rng())
        (expected,) = evaluate(mod, inputs)
        assert largest_error(compiled.run(0, inputs)[0], expected) < 1e-5


def test_options_choose_the_patterns() -> None:
    def names(**options: bool) -> set[str]:
        return {triple.name for triple in pattern_table(OpenBLASOptions(**options))}

    assert names(epilogues=False, permutations=False) == {"openblas.matmul"}
    assert names() - names(permutations=False) == {
        f"openblas.matmul_permuted_{where}" for where in PERMUTED
    }
    assert "openblas.matmul_bias_gelu" in names() - names(epilogues=False)


def test_wrong_arguments_raise_an_error_in_the_caller(shapes: CompiledCases) -> None:
    library = tvm.runtime.load_module(str(shapes.library)).imports[0]
    entry = library[next(name for name in exported_functions(shapes.library) if "fused" in name)]
    with pytest.raises(TypeError, match=r"expected [23] arguments, got 0"):
        entry()
    tensor = tvm.runtime.tensor(np.zeros((1, 1), np.float32))
    with pytest.raises((TypeError, ValueError), match="argument"):
        entry(*[tensor] * 2)


def exported_functions(library: Path) -> list[str]:
    """Names of the TVM functions that a library exports."""
    command = ["nm", "-D", "--defined-only", str(library)]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    prefix = "__tvm_ffi_"
    names = [line.split()[-1] for line in table.splitlines()]
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
