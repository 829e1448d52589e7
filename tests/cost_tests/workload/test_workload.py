"""Canonical workloads: what counts, what does not, and that they survive a trip to a worker."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import ir, relax
from tvm.relax import op

from collage.backends.relax.trees import Branches, packed, tree_ensemble
from collage.cost.processes.described import WorkloadMessage
from collage.cost.processes.protocol import decode, encode
from collage.cost.reference import evaluate, largest_error
from collage.cost.workload.data import DataSpec
from collage.cost.workload.workload import Workload
from tests.cost_tests.support import external_partition, native_partition, random_weight, tensor


def conv_module(seed: int, name: str = "fused", var: str = "x", **changes: object) -> tvm.IRModule:
    rng = np.random.default_rng(seed)
    high = changes.get("high", 6.0)
    padding = changes.get("padding", 1)

    def body(x: relax.Var) -> relax.Expr:
        conv = op.nn.conv2d(x, random_weight(rng, 4, 8, 3, 3), padding=padding)
        return op.clip(op.add(conv, random_weight(rng, 1, 4, 1, 1)), 0.0, high)

    params = [tensor(var, 1, 8, 6, 6)]
    if "backend" in changes:
        composite = str(changes.get("composite", "some.conv2d_bias_clip"))
        return external_partition(str(changes["backend"]), params, body, composite, name)
    return native_partition(params, body, name)


@pytest.mark.parametrize("backend", [{}, {"backend": "some"}])
def test_names_and_weights_do_not_matter(backend: dict[str, object]) -> None:
    first = Workload.from_module(conv_module(1, **backend))
    second = Workload.from_module(conv_module(2, "layer4_conv", "data", **backend))
    assert first.key == second.key
    assert first == second and len({first, second}) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"padding": 0},
        {"high": 5.0},
        {"backend": "some"},
    ],
)
def test_what_is_computed_matters(change: dict[str, object]) -> None:
    assert (
        Workload.from_module(conv_module(1)).key
        != Workload.from_module(conv_module(1, **change)).key
    )


def test_how_it_is_compiled_matters() -> None:
    keys = {
        Workload.from_module(conv_module(1, backend=backend, composite=composite)).key
        for backend in ("some", "other")
        for composite in ("some.a", "some.b")
    }
    assert len(keys) == 4


def test_shapes_of_constants_matter_but_not_their_identity() -> None:
    """One constant used twice is not two constants."""
    rng = np.random.default_rng(0)
    shared = random_weight(rng, 4, 6)
    other = random_weight(rng, 4, 6)
    x = tensor("x", 4, 6)
    once = native_partition([x], lambda x: op.multiply(op.add(x, shared), shared))
    y = tensor("x", 4, 6)
    twice = native_partition([y], lambda x: op.multiply(op.add(x, shared), other))
    a, b = Workload.from_module(once), Workload.from_module(twice)
    assert (len(a.constants), len(b.constants)) == (1, 2)
    assert a.key != b.key


def integer_module(values: list[int]) -> tvm.IRModule:
    table = relax.const(np.asarray(values, "int64"))
    return native_partition([tensor("x", 10, 3)], lambda x: op.take(x, table, axis=0))


def test_small_integer_constants_keep_their_values() -> None:
    a = Workload.from_module(integer_module([1, 9, 4]))
    b = Workload.from_module(integer_module([1, 9, 5]))
    assert a.key != b.key and not a.constants
    x = a.make_inputs()[0]
    np.testing.assert_array_equal(evaluate(a.materialize(), [x])[0], x[[1, 9, 4]])


def test_large_integer_constants_keep_their_range() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 10, 5000)
    workload = Workload.from_module(integer_module(values.tolist()))
    assert [(s.low, s.high) for s in workload.constants] == [(0, 9)]
    (out,) = evaluate(workload.materialize(), workload.make_inputs())
    assert out.shape == (5000, 3)


def test_nodes_of_trees_keep_their_values() -> None:
    """Links drawn at random would lead anywhere."""
    split = np.arange(0, 6000, 3)
    below, above = np.arange(6000), np.arange(6000)
    below[split], above[split] = split + 1, split + 2
    nodes = Branches(np.zeros(6000, "int64"), np.zeros(6000, "float32"), below, above)
    operands = packed(nodes, split, values=np.ones(6000, "float32"))

    def body(x: relax.Var) -> relax.Expr:
        return tree_ensemble([x, *(relax.const(a, str(a.dtype)) for a in operands)], 1)

    workload = Workload.from_module(native_partition([tensor("x", 4, 1)], body))
    assert not workload.constants
    (out,) = evaluate(workload.materialize(), workload.make_inputs())
    np.testing.assert_array_equal(out, np.full((4, 1), len(split)))


def test_the_key_is_the_same_in_another_process() -> None:
    code = (
        "from tests.cost_tests.workload.test_workload import *;"
        "print(Workload.from_module(conv_module(3, 'z', backend='some')).key)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == Workload.from_module(conv_module(7, backend="some")).key


def test_the_worker_gets_the_same_workload() -> None:
    workload = Workload.from_module(conv_module(1, backend="some"))
    copy: Workload = decode(encode(WorkloadMessage.of(workload)), WorkloadMessage).workload()
    tvm.ir.assert_structural_equal(workload.module, copy.module)
    assert (copy.key, copy.constants, copy.inputs, copy.outputs, copy.bounds) == (
        workload.key,
        workload.constants,
        workload.inputs,
        workload.outputs,
        workload.bounds,
    )
    # Same data on both sides, or checking outputs would be meaningless.
    ours = evaluate(workload.materialize(), workload.make_inputs())
    theirs = evaluate(copy.materialize(), copy.make_inputs())
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_constants_without_elements_reach_the_worker(dtype: str) -> None:
    nothing = relax.const(np.zeros((10, 0), dtype), dtype)
    mod = native_partition(
        [tensor("x", 10, 3)], lambda x: op.concat([op.astype(nothing, "float32"), x], axis=1)
    )
    workload = Workload.from_module(mod)
    message = decode(encode(WorkloadMessage.of(workload)), WorkloadMessage)
    copy: Workload = message.workload()
    (x,) = copy.make_inputs()
    np.testing.assert_array_equal(evaluate(copy.materialize(), [x])[0], x)
    assert Workload.from_module(copy.materialize()).key == workload.key


@pytest.mark.parametrize("backend", [{}, {"backend": "some"}])
def test_materializing_gives_a_well_formed_partitioned_module(backend: dict[str, object]) -> None:
    workload = Workload.from_module(conv_module(1, **backend))
    mod = workload.materialize()
    relax.analysis.well_formed(mod)
    assert "collage.constant" not in mod.script()
    assert Workload.from_module(mod).key == workload.key
    assert workload.backend == backend.get("backend", "tvm")


def test_a_materialized_module_compiles_and_agrees_with_the_reference() -> None:
    workload = Workload.from_module(conv_module(1))
    mod = workload.materialize()
    inputs = workload.make_inputs()
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(a) for a in inputs)).numpy()
    expected = evaluate(mod, inputs)[0]
    assert expected.std() > 0.1
    assert largest_error(result, expected) < 1e-5


def test_describe_flops_and_bytes() -> None:
    workload = Workload.from_module(conv_module(1, backend="some"))
    assert workload.describe() == "conv2d 1x8x6x6 * 4x8x3x3 + bias + clip"
    out = 4 * 6 * 6
    assert workload.flops == 2 * out * 8 * 9 + out + out
    assert workload.bytes == 4 * (8 * 36 + 4 * 8 * 9 + 4 + out)
    dense = native_partition(
        [tensor("a", 2, 3, 5), tensor("b", 5, 7)], lambda a, b: op.nn.relu(op.matmul(a, b))
    )
    workload = Workload.from_module(dense)
    assert workload.describe() == "matmul 2x3x5 * 5x7 + relu"
    assert workload.flops == 2 * 2 * 3 * 5 * 7 + 2 * 3 * 7


def test_a_long_chain_is_described_by_its_ends() -> None:
    def body(x: relax.Var) -> relax.Expr:
        for _ in range(9):
            x = op.tanh(op.exp(x))
        return op.nn.relu(x)

    text = Workload.from_module(native_partition([tensor("x", 5)], body)).describe()
    assert text == "exp 5 + tanh + exp + tanh + exp + tanh + 11 more + tanh + relu"


def test_indices_stay_in_bounds() -> None:
    rng = np.random.default_rng(0)
    table = random_weight(rng, 7, 4)

    def body(ids: relax.Var, mask: relax.Var) -> relax.Expr:
        taken = op.take(table, op.reshape(op.astype(ids, "int64"), (6,)), axis=0)
        return op.where(mask, taken, op.negative(taken))

    def params() -> list[relax.Var]:
        return [tensor("ids", 2, 3, dtype="int32"), tensor("mask", 6, 4, dtype="bool")]

    for mod in (native_partition(params(), body), external_partition("b", params(), body, "b.e")):
        workload = Workload.from_module(mod)
        assert workload.bounds == (7, None)
        ids, mask = workload.make_inputs(seed=5)
        assert ids.min() >= 0 and ids.max() < 7 and len(set(ids.ravel().tolist())) > 2
        assert mask.dtype == np.bool_ and 0 < mask.sum() < mask.size
        evaluate(workload.materialize(), [ids, mask])


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).standard_normal((64, 33)).astype("float32") * 0.02,
        np.abs(np.random.default_rng(1).standard_normal(1000)).astype("float32"),
        np.full((3, 5), 0.25, "float32"),
        np.where(np.eye(40, dtype=bool), 0.0, -np.inf).astype("float32"),
        np.random.default_rng(2).integers(-5, 9, (30, 30)).astype("int32"),
        np.random.default_rng(3).standard_normal((8, 9)).astype("float16"),
    ],
)
def test_regenerated_data_keeps_sign_scale_and_range(array: np.ndarray) -> None:
    spec = DataSpec.measure(array)
    data = spec.generate(seed=1)
    finite = array[np.isfinite(array)].astype("float64")
    assert data.shape == array.shape and data.dtype == array.dtype
    assert data.min() >= finite.min() and data.max() <= finite.max()
    assert data.astype("float64").std() <= 1.3 * finite.std() + 1e-12
    assert data.astype("float64").std() >= 0.5 * finite.std()
    np.testing.assert_array_equal(data, spec.generate(seed=1))
    if finite.std() > 0:
        assert not np.array_equal(data, spec.generate(seed=2))


def test_large_data_is_made_fast_and_has_no_equal_rows() -> None:
    spec = DataSpec((4096, 4096), "float32", -1.0, 1.0, 0.0, 0.1)
    data = spec.generate(0)
    assert len(np.unique(data[:, :8], axis=0)) > 4000


def test_large_data_of_different_seeds_has_nothing_in_common() -> None:
    """All of it is cut out of one block; products and sums must come out as of independent data."""
    spec = DataSpec((512, 1024), "float32", -4.0, 4.0, 0.0, 1.0)
    first, *others = (spec.generate(seed) for seed in range(1_000_003, 1_000_033))
    elements = first.ravel()
    for other in others:
        assert abs(np.corrcoef(elements, other.ravel())[0, 1]) < 0.01
        products = first[:256] @ other.T[:, :256]
        assert np.abs(products).max() < 7 * math.sqrt(1024), "more than chance"
    # Of a normal distribution so many lie within one, two and three deviations.
    for within, share in ((1, 0.683), (2, 0.954), (3, 0.9973)):
        assert np.mean(np.abs(elements) < within) == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize("most", [127, 128, 63])
def test_weights_that_are_bytes_times_a_step_stay_so(most: int) -> None:
    """Backends take them for bytes, so a quantized layer is timed as it will run."""
    rng = np.random.default_rng()
    steps = rng.uniform(0.001, 0.02, (16, 1, 1, 1)).astype("float32")
    weights = rng.integers(-most, min(most, 127), (16, 8, 3, 3), endpoint=True) * steps
    spec = DataSpec.measure(weights.astype("float32"))
    data = spec.generate(seed=1)
    assert spec.whole
    whole = data / (max(abs(spec.low), abs(spec.high)) / 127)
    np.testing.assert_allclose(whole, np.rint(whole), atol=1e-3)
    assert len(np.unique(np.rint(whole))) > 100
    others = rng.standard_normal((16, 8, 3, 3)).astype("float32")
    assert not DataSpec.measure(others).whole
    assert DataSpec.measure(others).range_key != spec.range_key


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [1, 1000, 200_001])
def test_the_range_of_half_precision_is_exact(dtype: str, size: int) -> None:
    array = np.random.default_rng(size).standard_normal(size).astype(dtype)
    exact = array.astype("float64")
    spec = DataSpec.measure(array)
    assert (spec.low, spec.high) == (exact.min(), exact.max())
    for odd in (np.inf, -np.inf, np.nan):
        holed = np.concatenate([array, np.array([odd], dtype), array])
        again = DataSpec.measure(holed)
        assert (again.low, again.high) == (spec.low, spec.high)


def test_weights_that_candidates_share_are_described_once() -> None:
    weight = relax.const(np.random.default_rng(0).standard_normal((8, 8)).astype("float32"))
    other = relax.const(np.random.default_rng(1).standard_normal((8, 8)).astype("float32"))
    known: dict[ir.GenericConst, DataSpec] = {}

    def sums(*used: relax.Expr) -> Workload:
        def body(x: relax.Var) -> relax.Expr:
            for constant in used:
                x = op.add(x, constant)
            return x

        return Workload.from_module(native_partition([tensor("x", 8, 8)], body), known)

    first = sums(weight)
    assert first.constants == (DataSpec.measure(weight.value.numpy()),)
    assert list(known) == [weight]
    mark = known[weight] = DataSpec((8, 8), "float32", -1.0, 1.0)
    assert sums(other, weight).constants == (DataSpec.measure(other.value.numpy()), mark)
    assert list(known) == [weight, other]
    assert sums(weight).key == first.key
