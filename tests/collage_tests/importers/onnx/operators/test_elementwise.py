"""Operators on single elements, up to the ends of what their type can hold."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from collage.importers import load_model
from collage.normalize import normalize
from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    fresh,
    model_of,
)
from tests.collage_tests.normalize.oracle import run


@pytest.mark.parametrize("operator", ["Sinh", "Cosh"])
def test_hyperbolic_functions_up_to_the_largest_number(operator: str) -> None:
    x = np.array([-89.4, -88.8, -60, -1, -1e-4, 0, 1e-4, 0.5, 20, 88.8, 89.4, 90, -90], np.float32)
    model = model_of([helper.make_node(operator, ["x"], ["y"])], {"x": x}, ["y"])
    with np.errstate(over="ignore"):
        wanted = {"Sinh": np.sinh, "Cosh": np.cosh}[operator](x)
    for found in (by_importer(model, {"x": x}), run(normalize(load_model(model).mod), [x])):
        np.testing.assert_allclose(found[0], wanted, rtol=1e-4)


@pytest.mark.parametrize("alpha", [1.0, -0.5])
def test_what_is_over_a_threshold(alpha: float) -> None:
    x = np.append(fresh(40), np.float32([np.inf, -np.inf, alpha]))
    node = helper.make_node("ThresholdedRelu", ["x"], ["y"], alpha=alpha)
    model = model_of([node], {"x": x}, ["y"])
    (found,) = by_importer(model, {"x": x})
    np.testing.assert_array_equal(found, by_onnxruntime(model, {"x": x})[0])
