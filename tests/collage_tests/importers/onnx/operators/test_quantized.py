"""Quantized operators of the standard: exact sums of bytes, and values rounded to steps."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    by_reference,
    byte_weights,
    model_of,
    require_same,
)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("by_channel", [False, True])
def test_quantized_convolution(kind: str, by_channel: bool) -> None:
    rng = np.random.default_rng()
    limits = np.iinfo(kind)
    x = rng.integers(limits.min, limits.max, (1, 4, 7, 8)).astype(kind)
    w = byte_weights("int8", 6, 2, 3, 3)
    scale = rng.uniform(0.01, 0.02, 6).astype("float32")
    constants = {
        "xs": np.array(0.02, "float32"),
        "xz": np.array(3, kind),
        "w": w,
        "ws": scale if by_channel else scale[:1].reshape(()),
        "wz": np.zeros(6 if by_channel else (), "int8"),
        "ys": np.array(0.07, "float32"),
        "yz": np.array(5, kind),
        "b": rng.integers(-500, 500, 6).astype("int32"),
    }
    node = helper.make_node(
        *("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"]),
        group=2,
        pads=[1, 0, 1, 2],
        strides=[2, 1],
    )
    model = model_of([node], {"x": x}, ["y"], constants)
    # One more or less where a product lies half-way: factors are multiplied in another order.
    (found,), (wanted,) = by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x})
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert np.abs(found.astype("int32") - wanted.astype("int32")).max() <= 1
    assert (found == wanted).mean() > 0.9


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_integer_products(kind: str) -> None:
    rng = np.random.default_rng()
    limits = np.iinfo(kind)
    given = {
        name: rng.integers(limits.min, limits.max, shape).astype(kind)
        for name, shape in (("a", (5, 300)), ("b", (300, 7)))
    }
    constants = {"az": np.array(7, kind), "bz": np.array(2, kind)}
    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])
    model = model_of([node], given, ["y"], constants)
    wide = [given["a"].astype("int32") - 7, given["b"].astype("int32") - 2]
    require_same(by_importer(model, given), [wide[0] @ wide[1]])


def test_integer_convolution_in_every_rank() -> None:
    rng = np.random.default_rng()
    for rank in (1, 2, 3):
        given = {
            "x": rng.integers(0, 255, (1, 3, *[6] * rank)).astype("uint8"),
            "w": rng.integers(0, 255, (2, 3, *[3] * rank)).astype("uint8"),
        }
        constants = {"xz": np.array(100, "uint8"), "wz": np.array(128, "uint8")}
        node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], pads=[1] * 2 * rank)
        model = model_of([node], given, ["y"], constants)
        require_same(by_importer(model, given), by_reference(model, given))


@pytest.mark.parametrize("values", [(-1.5, 2.0), (0.5, 2.0), (-2.0, -0.25), (0.0, 0.0)])
def test_dynamic_quantization(values: tuple[float, float]) -> None:
    x = np.random.default_rng().uniform(*values, (3, 4)).astype("float32")
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    model = model_of([node], {"x": x}, ["y", "s", "z"])
    (y, s, z), (wy, ws, wz) = by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x})
    assert (s, z) == (pytest.approx(ws, rel=1e-6), wz)
    assert np.abs(y.astype(int) - wy.astype(int)).max() <= 1
