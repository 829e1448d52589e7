"""Reductions over nothing, of whole numbers and of what is not finite."""

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
    require_same,
)
from tests.collage_tests.normalize.oracle import run


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("kind", ["float32", "int32"])
@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"])
def test_reductions_over_nothing(operator: str, kind: str, kept: int) -> None:
    x = np.zeros((2, 0, 3), kind)
    node = helper.make_node(operator, ["x", "axes"], ["y"], keepdims=kept)
    model = model_of([node], {"x": x}, ["y"], {"axes": np.array([1])}, opset=20)
    values = {
        "ReduceSum": 0,
        "ReduceProd": 1,
        "ReduceMax": -np.inf if kind == "float32" else np.iinfo(kind).min,
        "ReduceMin": np.inf if kind == "float32" else np.iinfo(kind).max,
    }
    (found,) = by_importer(model, {"x": x})
    wanted = np.full((2, 1, 3) if kept else (2, 3), values[operator], kind)
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("axes", [None, [0], [1, -1]])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_means_of_whole_numbers(kind: str, axes: list[int] | None) -> None:
    x = np.random.default_rng().integers(-99, 99, (3, 4, 5)).astype(kind)
    constants = {} if axes is None else {"axes": np.asarray(axes)}
    node = helper.make_node("ReduceMean", ["x", *constants], ["y"], keepdims=0)
    model = model_of([node], {"x": x}, ["y"], constants, opset=18)
    mod = normalize(load_model(model).mod)
    for found in (by_importer(model, {"x": x}), run(mod, [x])):
        require_same(found, by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("kept", [0, 1])
def test_logarithms_of_sums_of_nothing_but_zeros(kept: int) -> None:
    x = fresh(4, 5) * 50
    x[1], x[2, :3], x[3, 1] = -np.inf, -np.inf, np.inf
    node = helper.make_node("ReduceLogSumExp", ["x"], ["y"], axes=[1], keepdims=kept)
    model = model_of([node], {"x": x}, ["y"], opset=13)
    (found,) = by_importer(model, {"x": x})
    np.testing.assert_allclose(found, by_onnxruntime(model, {"x": x})[0], 1e-5, 1e-4)
