"""Whole networks, imported and normalized: against onnxruntime, and their operators counted."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
import tvm_ffi
from tvm import relax

from benchmarks.networks.models import (
    before_softmax,
    light_model,
    light_model_names,
    random_inputs,
    tiny_bert,
    tiny_mobilenet,
)
from collage.backends.devices.cpu_flags import sums_bytes_in_32_bits
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import evaluate, largest_error
from collage.importers import load_model
from collage.normalize import normalize
from collage.rewrite import flat_bindings, is_constant, op_name
from tests.collage_tests.normalize.oracle import operators

TOLERANCE = 1e-3
"""Of the largest value, before the last softmax."""

_QUICK = {"resnet50", "shufflenet", "squeezenet"}

CANONICAL = {
    *("nn.conv2d", "add", "nn.relu", "nn.max_pool2d", "nn.avg_pool2d", "mean", "matmul", "concat"),
    *("reshape", "permute_dims", "multiply", "divide", "power"),
}
"""What the nine light models consist of; the last three are LRN's and stray batch norms'."""


def by_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[np.ndarray]:
    """Its answers, with exact sums of bytes on processors without VNNI too: by itself it adds pairs
    of products there in 16 bits."""
    options = onnxruntime.SessionOptions()
    if not sums_bytes_in_32_bits():
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(value) for value in session.run(None, inputs)]


def agree(model: onnx.ModelProto) -> tvm.IRModule:
    """Import and normalize; the outputs are onnxruntime's, and once is enough."""
    imported = load_model(model)
    mod = normalize(imported.mod)
    inputs = random_inputs(model, 3)
    found = evaluate(mod, [inputs[spec.name] for spec in imported.inputs])
    for after, wanted in zip(found, by_onnxruntime(model, inputs), strict=True):
        assert after.shape == wanted.shape
        assert wanted.std() > 0.01 * np.abs(wanted).max(), "a constant output proves nothing"
        assert largest_error(after, wanted) < TOLERANCE
    assert tvm_ffi.structural_equal(normalize(mod), mod)
    return mod


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow)
        for name in light_model_names()
    ],
)
def test_light_models_agree_with_onnxruntime(name: str) -> None:
    mod = agree(before_softmax(light_model(name)))
    assert set(operators(mod)) <= CANONICAL
    for _, value in flat_bindings(mod["main"]):
        if op_name(value) == "add" and is_constant(value.args[1]):
            constant = static_shape(value.args[1])
            assert constant in ((), (1, static_shape(value)[1], 1, 1), static_shape(value)[-1:])


def test_resnet_is_normalized_in_seconds() -> None:
    mod = load_model(light_model("resnet50")).mod
    start = time.perf_counter()
    normalize(mod)
    assert time.perf_counter() - start < 10


def test_mobilenet_is_convolutions_biases_and_clips() -> None:
    counts = Counter(operators(agree(tiny_mobilenet())))
    assert set(counts) == {"nn.conv2d", "add", "clip", "mean", "reshape", "matmul"}
    assert counts["clip"] > 3
    assert counts["add"] >= counts["nn.conv2d"]


def test_bert_has_one_operator_per_layer_norm_and_gelu() -> None:
    model = tiny_bert()
    norms = sum(node.op_type == "LayerNormalization" for node in model.graph.node)
    gelus = sum(node.op_type == "Erf" for node in model.graph.node)
    mod = agree(model)
    counts = Counter(operators(mod))
    assert counts["nn.layer_norm"] == norms > 0
    assert counts["nn.gelu"] == gelus > 0
    assert not counts.keys() & {"erf", "expand_dims", "squeeze", "broadcast_to", "isnan", "stack"}
    dense = [
        value
        for _, value in flat_bindings(mod["main"])
        if op_name(value) == "matmul" and is_constant(value.args[1])
    ]
    assert all(len(static_shape(value.args[1])) == 2 for value in dense)
    assert len(dense) >= 6 * gelus


def old_layer_norm_model() -> onnx.ModelProto:
    """A dense layer, a layer norm and a tanh GELU as exporters wrote them before opset 17."""
    text = """
        <ir_version: 8, opset_import: ["" : 13]>
        encoder (float[2,5,8] x) => (float[2,5,8] y)
        <float[8,8] w, float[8] b, float[8] gain, float[8] offset,
         float two = {2.0}, float eps = {1e-5}, float cubic = {0.044715}, float three = {3.0},
         float root = {0.7978845608}, float one = {1.0}, float half = {0.5}> {
            product = MatMul(x, w)
            hidden = Add(b, product)
            mean = ReduceMean<axes=[-1]>(hidden)
            centered = Sub(hidden, mean)
            square = Pow(centered, two)
            variance = ReduceMean<axes=[-1]>(square)
            shifted = Add(variance, eps)
            deviation = Sqrt(shifted)
            normed = Div(centered, deviation)
            gained = Mul(normed, gain)
            z = Add(gained, offset)
            cube = Pow(z, three)
            term = Mul(cube, cubic)
            inner = Add(z, term)
            scaled = Mul(inner, root)
            tanh = Tanh(scaled)
            gate = Add(tanh, one)
            product2 = Mul(z, gate)
            y = Mul(product2, half)
        }
    """
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for name, shape in {"w": (8, 8), "b": (8,), "gain": (8,), "offset": (8,)}.items():
        array = random.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def test_layer_norm_and_tanh_gelu_chains_from_old_exporters() -> None:
    mod = agree(old_layer_norm_model())
    assert operators(mod) == ["matmul", "add", "nn.layer_norm", "nn.gelu_tanh"]


def test_layer_norm_between_transposes_stays_over_the_last_axis() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        channels (float[1,6,4,5] x) => (float[1,6,4,5] y)
        <float[6,6,3,3] w, float two = {2.0}, float eps = {1e-5}> {
            conv = Conv<pads=[1,1,1,1]>(x, w)
            last = Transpose<perm=[0,2,3,1]>(conv)
            mean = ReduceMean<axes=[-1]>(last)
            centered = Sub(last, mean)
            square = Pow(centered, two)
            variance = ReduceMean<axes=[-1]>(square)
            shifted = Add(variance, eps)
            deviation = Sqrt(shifted)
            normed = Div(centered, deviation)
            y = Transpose<perm=[0,3,1,2]>(normed)
        }
    """)
    weights = np.random.default_rng(0).standard_normal((6, 6, 3, 3), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    assert operators(agree(model)) == ["nn.conv2d", "permute_dims", "nn.layer_norm", "permute_dims"]


def test_result_is_one_dataflow_block_of_plain_relax() -> None:
    mod = normalize(load_model(tiny_bert()).mod)
    (block,) = mod["main"].body.blocks
    assert isinstance(block, relax.DataflowBlock)
    relax.analysis.well_formed(mod)
    restored = tvm.ir.load_json(tvm.ir.save_json(mod))
    assert tvm_ffi.structural_equal(restored, mod)
