"""Dynamically quantized layers become one operator, whatever their weights' types and scales."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper

from collage.backends.relax.stepped import NAME
from collage.importers import load_model
from collage.normalize import normalize
from collage.rewrite import flat_bindings, op_name
from tests.collage_tests.importers.onnx.onnx_models import Array, by_importer, model_of


def _layer(weights: Array, zero: Array | None, scale: Array, order: str, x: Array) -> ModelProto:
    """As onnxruntime's quantizer writes it, or with the scales multiplied one after the other."""
    named = ["q", "w", "z", "wz"] if zero is not None else ["q", "w", "z"]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", named, ["whole"]),
        helper.make_node("Cast", ["whole"], ["sums"], to=1),
    ]
    if order == "together":
        nodes += [
            helper.make_node("Mul", ["s", "ws"], ["both"]),
            helper.make_node("Mul", ["sums", "both"], ["y"]),
        ]
    else:
        nodes += [
            helper.make_node("Mul", ["s", "sums"], ["once"]),
            helper.make_node("Mul", ["once", "ws"], ["y"]),
        ]
    constants = {"w": weights, "ws": scale}
    if zero is not None:
        constants["wz"] = zero
    return model_of(nodes, {"x": x}, ["y"], constants)


def _operators(model: ModelProto) -> list[str]:
    mod = normalize(load_model(model).mod)
    return [op_name(value) for _, value in flat_bindings(mod["main"]) if op_name(value)]


def _defined(x: Array, weights: Array, zero: Array | None, scale: Array) -> Array:
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    step = (high - low) / np.float32(255)
    point = np.rint(np.clip(-low / step, 0, 255))
    q = np.clip(np.rint(x / step) + point, 0, 255)
    whole = weights.astype("int64") - (0 if zero is None else zero.astype("int64"))
    return ((q - point).astype("int64") @ whole).astype("float32") * (step * scale)


@pytest.mark.parametrize("order", ["together", "one after the other"])
@pytest.mark.parametrize("per", ["tensor", "column"])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int8 without zero points"])
def test_a_layer_is_one_operator(kind: str, per: str, order: str) -> None:
    rng = np.random.default_rng()
    limits, columns = np.iinfo(kind.split()[0]), 11
    weights = rng.integers(limits.min, limits.max, (23, columns), kind.split()[0], endpoint=True)
    shape = (columns,) if per == "column" else ()
    zero = None
    if "without" not in kind:
        zero = rng.integers(limits.min // 2, limits.max // 2, shape).astype(weights.dtype)
    scale = np.asarray(rng.uniform(0.001, 0.01, shape), "float32")
    x = rng.standard_normal((2, 5, 23)).astype("float32")
    model = _layer(weights, zero, scale, order, x)
    assert _operators(model) == [NAME]
    wanted = _defined(x, weights, zero, scale)
    (found,) = by_importer(model, {"x": x})
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_the_step_of_something_else_is_no_layer() -> None:
    """Integers of one tensor, multiplied by the step of another."""
    x = np.ones((2, 4), "float32")
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DynamicQuantizeLinear", ["t"], ["tq", "ts", "tz"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["sums"], to=1),
        helper.make_node("Mul", ["sums", "ts"], ["y"]),
    ]
    model = model_of(nodes, {"x": x, "t": x}, ["y"], {"w": np.ones((4, 3), "int8")})
    assert NAME not in _operators(model)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_onnxruntimes_own_product_is_one_operator(kind: str) -> None:
    rng = np.random.default_rng()
    limits = np.iinfo(kind)
    weights = rng.integers(limits.min, limits.max, (23, 11), kind, endpoint=True)
    zero = rng.integers(limits.min // 2, limits.max // 2, 11).astype(kind)
    scale = rng.uniform(0.001, 0.01, 11).astype("float32")
    x = rng.standard_normal((2, 5, 23)).astype("float32")
    node = helper.make_node(
        "DynamicQuantizeMatMul", ["x", "w", "ws", "wz"], ["y"], domain="com.microsoft"
    )
    constants = {"w": weights, "ws": scale, "wz": zero}
    model = model_of([node], {"x": x}, ["y"], constants, beyond="com.microsoft")
    assert _operators(model) == [NAME]
    wanted = _defined(x, weights, zero, scale)
    (found,) = by_importer(model, {"x": x})
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
