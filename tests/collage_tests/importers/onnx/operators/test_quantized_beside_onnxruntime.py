"""Convolutions and products of bytes as onnxruntime writes them: the same bytes come out."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper

from collage.importers import load_model
from collage.normalize import normalize
from collage.passes import fold_quantized
from collage.rewrite import flat_bindings, op_name
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    byte_weights,
    model_of,
)

KINDS = [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")]
"""Of what comes in and goes out, and of weights."""


def _whole(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)


def _steps(rng: np.random.Generator, kind: str, shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
    middle = 128 if kind == "uint8" else 0
    scale = np.asarray(rng.uniform(0.008, 0.012, shape), "float32")
    return scale, np.asarray(rng.integers(middle - 20, middle + 20, shape), kind)


def _require_as_onnxruntime(model: ModelProto, x: Array) -> None:
    (wanted,) = by_onnxruntime(model, {"x": x})
    (found,) = by_importer(model, {"x": x})
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if found.dtype == np.float32:
        assert np.abs(found - wanted).max() <= 1e-4 * max(1, np.abs(wanted).max())
        return
    # A step, and rarely: what lies by a tie.
    apart = np.abs(found.astype(int) - wanted.astype(int))
    assert apart.max() <= 1 and (apart > 0).mean() <= 0.01
    assert len(np.unique(wanted)) > 10


def _operators(model: ModelProto) -> list[str]:
    mod = normalize(fold_quantized(normalize(load_model(model).mod)))
    return [op_name(value) for _, value in flat_bindings(mod["main"]) if op_name(value)]


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_convolutions(kinds: tuple[str, str], biased: bool, groups: int) -> None:
    rng = np.random.default_rng()
    x = _whole(rng, kinds[0], (2, 6, 9, 8))
    weights = byte_weights(kinds[1], 12, 6 // groups, 3, 3)
    per_channel = kinds[1] == "int8"
    shape = (12,) if per_channel else ()
    xs, ws, ys = _steps(rng, kinds[0]), _steps(rng, kinds[1], shape), _steps(rng, kinds[0])
    if per_channel:
        ws = ws[0], np.zeros_like(ws[1])
    constants = {"w": weights, "xs": xs[0], "xz": xs[1], "ws": ws[0], "wz": ws[1]}
    constants |= {"ys": ys[0] * 6, "yz": ys[1]}
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    if biased:
        constants["b"] = rng.integers(-9000, 9000, 12).astype("int32")
        names.append("b")
    attributes = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
    node = helper.make_node("QLinearConv", names, ["y"], group=groups, **attributes)
    model = model_of([node], {"x": x}, ["y"], constants)
    _require_as_onnxruntime(model, x)
    assert "nn.conv2d" in _operators(model)


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_products(kinds: tuple[str, str]) -> None:
    rng = np.random.default_rng()
    x, weights = _whole(rng, kinds[0], (5, 23)), byte_weights(kinds[1], 23, 11)
    xs, ws, ys = _steps(rng, kinds[0]), _steps(rng, kinds[1]), _steps(rng, kinds[0])
    constants = {"w": weights, "xs": xs[0], "xz": xs[1], "ws": ws[0], "wz": ws[1]}
    constants |= {"ys": ys[0] * 6, "yz": ys[1]}
    node = helper.make_node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"])
    _require_as_onnxruntime(model_of([node], {"x": x}, ["y"], constants), x)


@pytest.mark.parametrize("to_float", [True, False])
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_dense_layers(kinds: tuple[str, str], turned: int, to_float: bool) -> None:
    rng = np.random.default_rng()
    x = _whole(rng, kinds[0], (5, 23))
    weights = byte_weights(kinds[1], *((11, 23) if turned else (23, 11)))
    xs, ws, ys = _steps(rng, kinds[0]), _steps(rng, kinds[1], (11,)), _steps(rng, kinds[0])
    constants = {"w": weights, "xs": xs[0], "xz": xs[1], "ws": ws[0], "wz": ws[1] * 0}
    constants["b"] = rng.integers(-9000, 9000, 11).astype("int32")
    names = ["x", "xs", "xz", "w", "ws", "wz", "b"]
    if not to_float:
        constants |= {"ys": ys[0] * 6, "yz": ys[1]}
        names += ["ys", "yz"]
    node = helper.make_node("QGemm", names, ["y"], transB=turned, domain="com.microsoft")
    model = model_of([node], {"x": x}, ["y"], constants, beyond="com.microsoft")
    _require_as_onnxruntime(model, x)
