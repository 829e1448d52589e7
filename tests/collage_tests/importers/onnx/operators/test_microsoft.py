"""onnxruntime's own operators, which its tools write into models, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    byte_weights,
    model_of,
    require_same,
)

_DOMAIN = "com.microsoft"


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("scales", ["one", "each column"])
def test_quantized_lstm(scales: str, direction: str, kind: str) -> None:
    """A value may be rounded to either of two neighbouring steps, and the steps after see it."""
    rng = np.random.default_rng()
    steps, width, hidden = 5, 6, 4
    count = 2 if direction == "bidirectional" else 1
    limits = np.iinfo(kind)
    per = [count, 4 * hidden] if scales == "each column" else [count]
    x = rng.uniform(-1, 1, (steps, 1, width)).astype("float32")
    constants: dict[str, Array] = {
        name: rng.integers(limits.min, limits.max, (count, rows, 4 * hidden), kind, endpoint=True)
        for name, rows in (("W", width), ("R", hidden))
    }
    constants["B"] = rng.uniform(-0.5, 0.5, (count, 8 * hidden)).astype("float32")
    for name in ("W", "R"):
        constants[f"{name}_scale"] = rng.uniform(0.002, 0.006, per).astype("float32")
        constants[f"{name}_zero"] = np.full(per, 0 if kind == "int8" else 128, kind)
    names = ["x", "W", "R", "B", "", "", "", "", "W_scale", "W_zero", "R_scale", "R_zero"]
    node = helper.make_node(
        *("DynamicQuantizeLSTM", names, ["Y", "Y_h", "Y_c"]),
        domain=_DOMAIN,
        hidden_size=hidden,
        direction=direction,
    )
    model = model_of([node], {"x": x}, ["Y", "Y_h", "Y_c"], constants, beyond=_DOMAIN)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}), 0.03)


def test_quantized_lstm_with_weights_that_are_computed() -> None:
    given = {"x": np.zeros((2, 1, 3), "float32"), "W": np.zeros((1, 3, 8), "int8")}
    constants = {
        "R": np.zeros((1, 2, 8), "int8"),
        "s": np.ones(1, "float32"),
        "z": np.zeros(1, "int8"),
    }
    names = ["x", "W", "R", "", "", "", "", "", "s", "z", "s", "z"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["Y"], domain=_DOMAIN, hidden_size=2)
    with pytest.raises(ModelError, match="weights is computed while the model runs"):
        load_model(model_of([node], given, ["Y"], constants, beyond=_DOMAIN))


def whole(kind: str, *shape: int) -> Array:
    limits = np.iinfo(kind)
    return np.random.default_rng().integers(limits.min, limits.max, shape, kind, endpoint=True)


def real(*shape: int) -> Array:
    return np.random.default_rng().uniform(-1, 1, shape).astype("float32")


def compare(
    operator: str, given: dict[str, Array], tolerance: float = 1e-4, **attributes: Any
) -> None:
    """Inputs in the given order; those in capitals are constants, empty names are left out."""
    node = helper.make_node(operator, list(given), ["y"], domain=_DOMAIN, **attributes)
    fed = {name: array for name, array in given.items() if name and name.islower()}
    constants = {name: array for name, array in given.items() if name.isupper()}
    model = model_of([node], fed, ["y"], constants, beyond=_DOMAIN)
    (ours,), (wanted,) = by_importer(model, fed), by_onnxruntime(model, fed)
    if wanted.dtype.kind in "iu":
        # A number right between two integers may be rounded to either.
        assert (ours.shape, ours.dtype) == (wanted.shape, wanted.dtype)
        assert int(np.abs(ours.astype("int32") - wanted).max()) <= 1
        return
    require_same([ours], [wanted], tolerance)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_two_quantized(operator: str, kind: str) -> None:
    given = {"a": whole(kind, 3, 8), "AS": np.float32(0.02), "AZ": np.asarray(7, kind)}
    given |= {"b": whole(kind, 1, 8), "BS": np.float32(0.03), "BZ": np.asarray(3, kind)}
    given |= {"YS": np.float32(0.05), "YZ": np.asarray(60, kind)}
    compare(operator, {name: np.asarray(array) for name, array in given.items()})


@pytest.mark.parametrize("operator", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_one_quantized(operator: str) -> None:
    given = {"x": whole("uint8", 5, 9), "XS": np.float32(0.03), "XZ": np.uint8(120)}
    given |= {"YS": np.float32(0.01), "YZ": np.uint8(20)}
    compare(operator, {name: np.asarray(array) for name, array in given.items()})


def test_quantized_mean_of_all_places() -> None:
    given = {"x": whole("uint8", 1, 4, 5, 6), "XS": np.float32(0.03), "XZ": np.uint8(120)}
    given |= {"YS": np.float32(0.01), "YZ": np.uint8(128)}
    given = {name: np.asarray(array) for name, array in given.items()}
    compare("QLinearGlobalAveragePool", given, channels_last=0)


def test_quantized_joined() -> None:
    given = {"YS": np.float32(0.02), "YZ": np.uint8(9)}
    for name, scale in (("a", 0.02), ("b", 0.03)):
        given |= {name: whole("uint8", 2, 3), f"{name}s".upper(): np.float32(scale)}
        given[f"{name}z".upper()] = np.uint8(5)
    compare("QLinearConcat", {name: np.asarray(array) for name, array in given.items()}, axis=1)


@pytest.mark.parametrize("columns", ["one", "each"])
def test_products_of_integers(columns: str) -> None:
    scale = np.asarray(0.02, "float32") if columns == "one" else 0.01 + 0.01 * abs(real(6))
    zero = np.asarray(3, "int8") if columns == "one" else whole("int8", 6) // 2
    given = {"a": whole("uint8", 4, 32), "B": whole("int8", 32, 6), "AS": np.float32(0.02)}
    given |= {"BS": scale, "AZ": np.uint8(100), "BZ": zero, "C": real(6)}
    compare("MatMulIntegerToFloat", {name: np.asarray(array) for name, array in given.items()})
    given = {"x": real(4, 32), "B": given["B"], "BS": scale, "BZ": zero, "C": given["C"]}
    compare("DynamicQuantizeMatMul", given, 0.02)


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_products(trans_a: int, trans_b: int) -> None:
    a, b = real(*([5, 3] if trans_a else [3, 5])), real(*([7, 5] if trans_b else [5, 7]))
    turns = {"transA": trans_a, "transB": trans_b, "alpha": 0.25}
    compare("FusedMatMul", {"a": np.stack([a, -a]), "b": np.stack([b, b])}, **turns)
    compare("FusedGemm", {"a": a, "b": b, "C": real(7)}, activation="Relu", **turns)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip"])
def test_fused_convolution(activation: str) -> None:
    given = {"x": real(1, 3, 7, 7), "W": real(4, 3, 3, 3), "B": real(4)}
    parameters = {"LeakyRelu": [0.2], "Clip": [-0.1, 0.3]}.get(activation)
    attributes = {"activation_params": parameters} if parameters else {}
    compare("FusedConv", given, activation=activation, pads=[1] * 4, **attributes)


@pytest.mark.parametrize("stacked", [(2,), (2, 3)])
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_products_of_stacks_behind_rows(trans_b: int, trans_a: int, stacked: Any) -> None:
    a = real(*([5, *stacked, 3] if trans_a else [3, *stacked, 5]))
    b = real(*([7, *stacked, 5] if trans_b else [5, *stacked, 7]))
    turns = {"transA": trans_a, "transB": trans_b, "transBatchA": 1, "transBatchB": 1}
    compare("FusedMatMul", {"a": a, "b": b}, **turns)


def test_quick_gelu() -> None:
    compare("QuickGelu", {"x": real(3, 8)}, alpha=1.5)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_between_rows(metric: str) -> None:
    compare("CDist", {"a": real(3, 5), "b": real(4, 5)}, metric=metric)


def steps(kind: str, *shape: int, scale: float = 0.03, zero: int = 20) -> dict[str, Array]:
    given = {"x": whole(kind, *shape), "XS": np.float32(scale), "XZ": np.asarray(zero, kind)}
    given |= {"YS": np.float32(0.01), "YZ": np.asarray(10, kind)}
    return {name: np.asarray(array) for name, array in given.items()}


@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (1, 11)])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_quantized_softmax(kind: str, axis: int, opset: int) -> None:
    compare("QLinearSoftmax", steps(kind, 2, 3, 5), axis=axis, opset=opset)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_quantized_mean_pool(last: int, count: int) -> None:
    given = steps("uint8", *([1, 7, 8, 4] if last else [1, 4, 7, 8]))
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    compare("QLinearAveragePool", given, channels_last=last, count_include_pad=count, **window)


def test_quantized_means() -> None:
    """onnxruntime has the operator's definition, and no kernel to compare with."""
    given = steps("uint8", 2, 3, 5)
    node = helper.make_node("QLinearReduceMean", list(given), ["y"], domain=_DOMAIN, axes=[2])
    constants = {name: array for name, array in given.items() if name.isupper()}
    model = model_of([node], {"x": given["x"]}, ["y"], constants, beyond=_DOMAIN)
    (ours,) = by_importer(model, {"x": given["x"]})
    mean = 0.03 * (given["x"].astype("float32") - 20).mean(2, keepdims=True)
    wanted = np.clip(np.round(mean / 0.01) + 10, 0, 255)
    assert ours.dtype == np.uint8 and np.abs(ours - wanted).max() <= 1


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_quantized_choice(kind: str) -> None:
    given: dict[str, Array] = {"c": np.random.default_rng().integers(0, 2, (3, 4)).astype(bool)}
    given |= {"x": whole(kind, 3, 4), "XS": np.float32(0.03), "XZ": np.asarray(20, kind)}
    given |= {"y2": whole(kind, 1, 4), "Y2S": np.float32(0.02), "Y2Z": np.asarray(5, kind)}
    given |= {"ZS": np.float32(0.04), "ZZ": np.asarray(30, kind)}
    compare("QLinearWhere", {name: np.asarray(array) for name, array in given.items()})


@pytest.mark.parametrize("scales", ["one", "each column"])
@pytest.mark.parametrize("causal", [0, 1])
def test_quantized_attention(causal: int, scales: str) -> None:
    batch, rows, width = 2, 5, 16
    per = [3 * width] if scales == "each column" else []
    given: dict[str, Array] = {"x": whole("uint8", batch, rows, 8), "W": whole("int8", 8, 48)}
    given |= {"B": real(3 * width), "XS": np.float32(0.004)}
    given["WS"] = np.random.default_rng().uniform(0.002, 0.006, per).astype("float32")
    given |= {"m": np.asarray([3, 5], "int32"), "XZ": np.uint8(120)}
    given["WZ"] = np.zeros(per, "int8")
    given = {name: np.asarray(array) for name, array in given.items()}
    compare("QAttention", given, 1e-3, num_heads=4, unidirectional=causal)


def test_quantized_embeddings() -> None:
    rng = np.random.default_rng()
    given: dict[str, Array] = {"i": rng.integers(0, 30, (2, 5), "int32")}
    given |= {"s": rng.integers(0, 2, (2, 5), "int32"), "W": whole("uint8", 30, 8)}
    given |= {"P": whole("uint8", 9, 8), "S": whole("uint8", 2, 8)}
    given |= {"G": whole("uint8", 8), "B": whole("uint8", 8), "m": np.ones((2, 5), "int32")}
    given |= {f"{name}S": np.float32(0.01 + 0.002 * i) for i, name in enumerate("WPSGB")}
    given |= {f"{name}Z": np.uint8(100 + i) for i, name in enumerate("WPSGB")}
    given = {name: np.asarray(array) for name, array in given.items()}
    names = ["y", "lengths"]
    node = helper.make_node("QEmbedLayerNormalization", list(given), names, domain=_DOMAIN)
    fed = {name: array for name, array in given.items() if name.islower()}
    constants = {name: array for name, array in given.items() if name.isupper()}
    model = model_of([node], fed, names, constants, beyond=_DOMAIN)
    require_same(by_importer(model, fed), by_onnxruntime(model, fed))


def test_quantized_convolution_of_channels_last() -> None:
    given: dict[str, Array] = {"x": whole("uint8", 1, 7, 6, 4), "XS": np.float32(0.02)}
    given |= {"XZ": np.uint8(110), "W": byte_weights("int8", 5, 4, 3, 3)}
    given |= {"WS": (0.01 + 0.01 * abs(real(5))), "WZ": np.zeros(5, "int8")}
    given |= {"YS": np.float32(0.1), "YZ": np.uint8(128)}
    given["B"] = np.arange(-100, 150, 50, "int32")
    given = {name: np.asarray(array) for name, array in given.items()}
    window = {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 0, 1, 0]}
    compare("QLinearConv", given, channels_last=1, **window)


def test_largest_of_windows_with_channels_last() -> None:
    for kind in ("uint8", "int8"):
        window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}
        compare("NhwcMaxPool", {"x": whole(kind, 1, 7, 6, 4)}, **window)
