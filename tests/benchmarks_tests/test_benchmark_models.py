"""The networks of the benchmark: weights refilled so that comparing outputs means something."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks.networks.models import (
    before_softmax,
    input_shapes,
    light_model,
    light_model_names,
    random_inputs,
    refill_weights,
    tiny_bert,
    tiny_mobilenet,
)

_LARGE = {"bvlc_alexnet", "vgg19", "zfnet512"}  # hundreds of megabytes of weights each
_NAMES = [
    pytest.param(name, marks=pytest.mark.slow if name in _LARGE else ())
    for name in light_model_names()
]


def run(model: ModelProto, seed: int) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, random_inputs(model, seed))[0])


def test_there_are_nine_light_models() -> None:
    assert len(light_model_names()) == 9
    assert {"resnet50", "squeezenet", "densenet121"} <= set(light_model_names())
    with pytest.raises(KeyError, match="resnet50"):
        light_model("resnet51")


@pytest.mark.parametrize("name", _NAMES)
def test_light_model_answers_its_input(name: str) -> None:
    model = light_model(name)
    onnx.checker.check_model(model)
    logits = before_softmax(model)
    first, second = run(logits, 0), run(logits, 1)
    assert 0.5 < first.std() < 20, "activations vanish or explode"
    assert np.abs(first - second).max() > 0.02 * np.abs(first).max(), "input hardly matters"
    assert np.unique(first.round(4)).size > 500, "classes look alike"


@pytest.mark.parametrize("name", ["resnet50", "squeezenet"])
def test_softmax_is_not_saturated(name: str) -> None:
    assert 0.002 < run(light_model(name), 0).max() < 0.95


def test_refill_is_reproducible() -> None:
    first = light_model("squeezenet", seed=3).SerializeToString(deterministic=True)
    assert light_model("squeezenet", seed=3).SerializeToString(deterministic=True) == first
    assert light_model("squeezenet", seed=4).SerializeToString(deterministic=True) != first


@pytest.mark.parametrize("name", ["resnet50", "inception_v2", "shufflenet"])
def test_refill_changes_only_weights(name: str) -> None:
    model = light_model(name)
    original = onnx.load(onnx.__path__[0] + f"/backend/test/data/light/light_{name}.onnx")
    kept = [n for n in original.graph.node if n.op_type != "ConstantOfShape"]
    assert [n.SerializeToString() for n in model.graph.node] == [
        n.SerializeToString() for n in kept
    ]
    weights = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    variances = [n.input[4] for n in kept if n.op_type == "BatchNormalization"]
    assert variances
    assert all(weights[v].min() > 0.5 for v in variances)
    before = [i for i in original.graph.initializer if i.data_type == TensorProto.INT64]
    shapes = [i for i in before if not i.name.endswith("__SHAPE")]
    assert all((weights[i.name] == numpy_helper.to_array(i)).all() for i in shapes)


def test_refill_leaves_bounds_of_clips() -> None:
    model = tiny_mobilenet()
    bounds = {n.input[2] for n in model.graph.node if n.op_type == "Clip"}
    assert bounds
    refill_weights(model, seed=5)
    weights = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    assert {float(weights[b]) for b in bounds} == {6.0}


def test_before_softmax_is_its_input() -> None:
    model = light_model("squeezenet")
    logits, full = run(before_softmax(model), 0), run(model, 0)
    exponents = np.exp(logits - logits.max())
    np.testing.assert_allclose(exponents / exponents.sum(), full, rtol=1e-4, atol=1e-8)
    assert logits.shape == full.shape
    assert "Softmax" in Counter(n.op_type for n in model.graph.node), "the original is changed"


def test_before_softmax_leaves_attention_alone() -> None:
    model = tiny_bert()
    assert before_softmax(model) is model


@pytest.mark.parametrize("build", [tiny_bert, tiny_mobilenet])
def test_tiny_models(build: object) -> None:
    model: ModelProto = build(seed=1)  # type: ignore[operator]
    onnx.checker.check_model(model, full_check=True)
    first, second = run(model, 0), run(model, 1)
    assert np.abs(first - second).max() > 0.05 * np.abs(first).max()


def test_random_inputs_suit_their_kind() -> None:
    values = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, (1, 64)),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, (1, 64)),
        helper.make_tensor_value_info("token_type_ids", TensorProto.INT64, (1, 64)),
        helper.make_tensor_value_info("image", TensorProto.FLOAT, (2, 3, 40, 56)),
    ]
    model = helper.make_model(helper.make_graph([], "inputs", values, []))
    assert input_shapes(model)["image"] == (2, 3, 40, 56)
    inputs = random_inputs(model, 7)
    assert inputs["attention_mask"].tolist() == [[1] * 56 + [0] * 8]
    assert set(inputs["token_type_ids"].ravel()) == {0, 1}
    assert inputs["input_ids"].max() > 100
    assert inputs["image"].dtype == np.float32
    assert np.array_equal(inputs["image"], random_inputs(model, 7)["image"])


def test_open_dimensions_are_refused() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 3))
    with pytest.raises(ValueError, match="open"):
        input_shapes(helper.make_model(helper.make_graph([], "open", [value], [])))


@pytest.mark.slow
@pytest.mark.torch
def test_exported_models(tmp_path: object) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    pytest.importorskip("transformers")
    from benchmarks.networks.exported import mobilenet_v2

    model = mobilenet_v2(image=96, cache=tmp_path)  # type: ignore[arg-type]
    assert Counter(n.op_type for n in model.graph.node)["Conv"] == 52
    assert 0.3 < run(model, 0).std() < 20
    again = mobilenet_v2(image=96, cache=tmp_path)  # type: ignore[arg-type]
    assert again.SerializeToString() == model.SerializeToString()
