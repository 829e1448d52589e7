"""Regions as TensorRT networks: constants, layouts, precisions, what goes in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.tensorrt._case import LAST, module, weights
from collage.backends.contract import TargetSet
from collage.backends.tensorrt import library as adapter
from collage.backends.tensorrt.problem import NetworkWriter
from collage.cost.reference import evaluate
from collage.search.dataflow import DataflowGraph
from collage.search.rules import default_rules
from tests.backends_tests.tensorrt import support
from tests.backends_tests.tensorrt.network import evaluate_network

pytestmark = pytest.mark.cuda
pytest.importorskip("tensorrt_rtx", reason="engines without a GPU need TensorRT for RTX")

CHANNELS_LAST = {"data_layout": "NHWC", "kernel_layout": "OHWI"}


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The memory of all weights that are bound from now on."""
    module, pointers = support.installed().module, []
    original = module.Weights

    def recording(dtype: Any, pointer: int, count: int) -> Any:
        pointers.append(pointer)
        return original(dtype, pointer, count)

    monkeypatch.setattr(module, "Weights", recording)
    return pointers


def test_each_constant_is_bound_once(bound: list[int]) -> None:
    shared, other = weights(13, 13, seed=1), weights(13, 13, seed=2)
    copy = relax.const(shared.value.numpy().copy())

    def body(x: relax.Expr) -> relax.Expr:
        for columns in (shared, other, shared, copy):
            x = op.matmul(x, columns)
        return x

    function, wanted = support.region(module([((3, 13), "float32")], body))
    seen = support.write(function, wanted)
    assert seen.layers.count("MATRIX_MULTIPLY") == 4
    assert seen.layers.count("CONSTANT") == len(bound) == 2


def test_weights_are_bound_from_the_modules_own_memory(bound: list[int]) -> None:
    columns = weights(13, 7)
    support.write(*support.region(support.dense(columns)))
    assert bound == [np.from_dlpack(columns.value).ctypes.data]


def test_a_convolution_shares_its_kernel_too(bound: list[int]) -> None:
    kernel = weights(4, 3, 3, 4)

    def body(x: relax.Expr) -> relax.Expr:
        for _ in range(3):
            x = op.nn.conv2d(x, kernel, padding=1, **CHANNELS_LAST)
        return x

    support.write(*support.region(module([(LAST, "float32")], body)))
    assert len(bound) == 1


def test_channels_last_goes_through_shuffles() -> None:
    kernel = weights(8, 3, 3, 4)
    function, wanted = support.region(
        module([(LAST, "float32")], lambda x: op.nn.conv2d(x, kernel, padding=1, **CHANNELS_LAST))
    )
    assert support.write(function, wanted).layers == [
        "SHUFFLE",
        "CONVOLUTION",
        "SHUFFLE",
        "IDENTITY",
    ]


@pytest.mark.parametrize(("option", "dtype"), [("use_fp16", "HALF"), ("use_bf16", "BF16")])
def test_half_precision_is_inside_only(option: str, dtype: str, tmp_path: Path) -> None:
    function, wanted = support.region(support.dense(weights(13, 7)), **{option: True})
    package, dtypes, ends = support.installed(), [], []

    def write(network: Any, logger: Any) -> None:
        writer = NetworkWriter(package, network, logger, wanted.options, "region")
        kept.append(writer)
        writer.write(function)
        for index in range(network.num_layers):
            layer = network.get_layer(index)
            if layer.type.name in ("MATRIX_MULTIPLY", "ACTIVATION", "CONSTANT"):
                dtypes.append(layer.get_output(0).dtype.name)
        ends.extend([network.get_input(0).dtype.name, network.get_output(0).dtype.name])

    kept: list[Any] = []
    plan, _ = adapter.build_plan(package, support.ARCH, wanted.options, write)
    assert plan and dtypes == [dtype] * 3
    assert ends == ["FLOAT", "FLOAT"]


def test_masks_stay_finite_in_half_precision() -> None:
    lowest = relax.const(np.full((1, 13), np.finfo(np.float32).min))
    function, wanted = support.region(
        module([((3, 13), "float32")], lambda x: op.matmul(op.add(x, lowest), weights(13, 7))),
        use_fp16=True,
    )
    inputs = [np.zeros((3, 13), np.float32)]
    (result,) = support.write(function, wanted, inputs).outputs
    assert np.isfinite(result).all() and np.abs(result).max() > 6e4


def test_norms_are_computed_in_float32() -> None:
    row = [weights(11, seed=seed) for seed in (1, 2)]
    function, wanted = support.region(
        module([((3, 11), "float32")], lambda x: op.nn.layer_norm(x, *row, [-1])), use_fp16=True
    )
    inputs = [np.random.default_rng(0).standard_normal((3, 11)).astype(np.float32)]
    (result,) = support.write(function, wanted, inputs).outputs
    gamma, beta = (constant.value.numpy() for constant in row)
    x = inputs[0].astype(np.float64)
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    expected = (x - x.mean(-1, keepdims=True)) / spread * gamma + beta
    assert np.abs(result - expected).max() < 2e-3


def test_several_outputs_and_a_passed_through_input() -> None:
    def body(x: relax.Expr) -> relax.Expr:
        return op.split(op.nn.relu(x), 3, 1)

    mod = module([((2, 9), "float32")], body)
    function, wanted = support.region(mod)
    inputs = support.random_inputs(mod)
    outputs = support.write(function, wanted, inputs).outputs
    assert [o.shape for o in outputs] == [(2, 3)] * 3
    assert np.array_equal(np.concatenate(outputs, 1), np.maximum(inputs[0], 0).astype(np.float64))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("mask", ["", "TopLeft", "BottomRight"])
def test_attention_without_its_layer_is_a_chain(mask: str, biased: bool) -> None:
    """As versions before 10.16 have it."""
    shapes = [(2, 6, 4, 8), (2, 7, 4, 8), (2, 7, 4, 8), (1, 1, 6, 7)][: 4 if biased else 3]

    def body(*args: relax.Expr) -> relax.Expr:
        attention = op.nn.attention_bias if biased else op.nn.attention
        return attention(*args, causal_mask=mask or None)

    mod = module([(shape, "float32") for shape in shapes], body)
    function, wanted = support.region(mod)
    package, seen = support.installed(), []
    inputs = support.random_inputs(mod)

    class Older:
        """A network without the layer."""

        def __init__(self, network: Any) -> None:
            self._network = network

        def __getattr__(self, name: str) -> Any:
            if name == "add_attention_v2":
                raise AttributeError(name)
            return getattr(self._network, name)

    def fill(network: Any, logger: Any) -> None:
        writers.append(NetworkWriter(package, Older(network), logger, wanted.options, "region"))
        writers[0].write(function)
        kinds = {network.get_layer(i).type.name for i in range(network.num_layers)}
        assert {"SOFTMAX", "MATRIX_MULTIPLY"} <= kinds and "ATTENTION_INPUT" not in kinds
        seen.extend(evaluate_network(package.module, network, inputs))

    writers: list[NetworkWriter] = []
    adapter.build_plan(package, support.ARCH, wanted.options, fill)
    (expected,) = evaluate(mod, inputs)
    assert np.abs(seen[0] - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("remove", [False, True])
def test_regions_without_products_are_left_to_tvm(remove: bool) -> None:
    def body(x: relax.Expr) -> relax.Expr:
        # The cumulative sum is TVM's, so there are two regions: one of them has a product.
        first = op.cumsum(op.exp(op.tanh(x)), 0)
        return op.nn.relu(op.matmul(first, weights(13, 7)))

    mod = module([((3, 13), "float32")], body)
    wanted = support.target(remove_no_mac_subgraphs=remove)
    partitioned = support.partition(mod, wanted)
    assert len(partitioned.functions) == (1 if remove else 2)
    graph = DataflowGraph.from_function(mod["main"], mod)
    found = default_rules(TargetSet(support.native(), (wanted,))).find(graph)
    held = {c.nodes for c in found.candidates if c.backend == "tensorrt"}
    products = {i for i in range(len(graph)) if graph.op_name(i) == "matmul"}
    assert held and all(any(n >> i & 1 for i in products) for n in held) is remove
    reasons = {r.reason for r in found.rejections if "multiply-accumulate" in r.reason}
    assert bool(reasons) is remove
    inputs = support.random_inputs(mod)
    (expected,), (got,) = evaluate(mod, inputs), evaluate(partitioned.module, inputs)
    assert np.abs(got - expected).max() < 1e-5 * np.abs(expected).max()
