"""Folding a graph changes no numbers: what a file rounds is rounded, as often, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper, reference

from tests.collage_tests.importers.onnx.onnx_models import Array, by_importer, model_of


def _rounded(name: str, step: str, zero: str) -> list[NodeProto]:
    """To bytes, and back."""
    return [
        helper.make_node("QuantizeLinear", [name, step, zero], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", step, zero], [f"{name}_r"]),
    ]


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose", "Gemm"])
def test_weights_stay_as_exact_as_they_are(operator: str) -> None:
    """Between rounded values, too, where onnxruntime would have them in bytes."""
    rng = np.random.default_rng()
    shape, extents = ((6, 5), (3, 6)) if operator == "Gemm" else ((6, 6, 3), (1, 6, 9))
    constants: dict[str, Array] = {
        "w": rng.standard_normal(shape, "float32"),
        "b": rng.standard_normal(shape[1], "float32"),
        "step": np.float32(0.03),
        "fine": np.float32(0.05),
        "zero": np.uint8(128),
    }
    nodes = [
        *_rounded("x", "step", "zero"),
        helper.make_node(operator, ["x_r", "w", "b"], ["y"]),
        *_rounded("y", "fine", "zero"),
    ]
    x = rng.standard_normal(extents, "float32")
    model = model_of(nodes, {"x": x}, ["y_r"], constants, opset=19)
    wanted = np.asarray(reference.ReferenceEvaluator(model).run(None, {"x": x})[0])
    off = np.abs(by_importer(model, {"x": x})[0] - wanted)
    # What lies between two steps may be rounded either way.
    assert off.max() < 0.051 and (off > 1e-4).mean() < 0.05


def test_what_is_rounded_twice_is_rounded_twice() -> None:
    rng = np.random.default_rng()
    x = rng.standard_normal((64, 5), "float32")
    constants: dict[str, Array] = {
        "step": np.float32(0.05),
        "wide": np.float32(0.07),
        "zero": np.uint8(120),
        "other": np.uint8(131),
    }
    nodes = [
        *_rounded("x", "step", "zero"),
        *_rounded("x_r", "wide", "other"),
        helper.make_node("Abs", ["x_r_r"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, ["y"], constants, opset=19)
    wanted = reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(by_importer(model, {"x": x})[0], wanted, rtol=1e-6, atol=1e-6)
