"""Operators that read or move elements by position, beside onnxruntime."""

from __future__ import annotations

from typing import Any

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


def test_sequences_backwards() -> None:
    x, lengths = fresh(5, 3, 2), np.array([1, 5, 3])
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], time_axis=0, batch_axis=1)
    model = model_of([node], given := {"x": x, "n": lengths}, ["y"])
    require_same(by_importer(model, given), by_onnxruntime(model, given), 0)


@pytest.mark.parametrize(
    "attributes",
    [
        {"starts": [1, 0], "ends": [100, -1], "axes": [1, -1]},
        {"starts": [0, 1, -3], "ends": [1, 3, 2**31 - 1]},
    ],
    ids=["axes", "no-axes"],
)
def test_slice_by_attributes(attributes: dict[str, Any]) -> None:
    """Of operator set 9, where nothing of it is an input."""
    x = fresh(2, 3, 4, 5)
    model = model_of([helper.make_node("Slice", ["x"], ["y"], **attributes)], {"x": x}, ["y"])
    model.opset_import[0].version = 9
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("opset", [9, 10, 11])
def test_largest_elements_of_each_operator_set(opset: int) -> None:
    """Their number is an attribute, then an input."""
    # All different, however they are drawn.
    x = np.random.default_rng().permutation(120).reshape(2, 3, 4, 5).astype("float32")
    attribute, name = ({"k": 2}, []) if opset < 10 else ({}, ["k"])
    node = helper.make_node("TopK", ["x", *name], ["y", "places"], axis=2, **attribute)
    constants = {"k": np.asarray([2])} if name else {}
    model = model_of([node], {"x": x}, ["y", "places"], constants, opset=opset)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_the_largest_in_any_order(axis: int, largest: int) -> None:
    rng = np.random.default_rng()
    x = rng.permutation(60).astype("float32").reshape(5, 12)  # No two are alike.
    node = helper.make_node(
        *("TopK", ["x", "k"], ["values", "places"]), axis=axis, largest=largest, sorted=0
    )
    model = model_of([node], {"x": x}, ["values", "places"], {"k": np.array([3])})
    values, places = by_importer(model, {"x": x})
    assert np.array_equal(values, np.take_along_axis(x, places, axis))
    wanted, _ = by_onnxruntime(model, {"x": x})
    assert np.array_equal(np.sort(values, axis), np.sort(wanted, axis))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("fixed", [False, True])
def test_elements_gathered_by_smaller_indices(axis: int, fixed: bool) -> None:
    x = fresh(4, 5, 6)
    places = np.random.default_rng().integers(-4, 4, (2, 3, 4))
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=axis)
    if fixed:
        model = model_of([node], {}, ["y"], {"x": x, "i": places})
        given = {}
    else:
        given = {"x": x, "i": places}
        model = model_of([node], given, ["y"])
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize(
    ("shape", "wanted", "allowed"),
    [
        ((0, 3, 4), (3, 0, 4), 1),
        ((0, 3, 4), (4, 0), 1),
        ((2, 0, 4), (0, 5), 1),
        ((2, 0, 4), (0, 0, 4), 0),
        ((2, 0), (-1, 3), 0),
        ((0,), (0, 7, 0), 1),
    ],
)
def test_reshape_of_nothing(shape: tuple[int, ...], wanted: tuple[int, ...], allowed: int) -> None:
    x, y = np.zeros(shape, "float32"), fresh(2, 2)
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["z"], allowzero=allowed),
        helper.make_node("Tanh", ["z"], ["a"]),
        helper.make_node("Tanh", ["y"], ["b"]),
    ]
    given = {"x": x, "y": y}
    model = model_of(nodes, given, ["a", "b"], {"shape": np.array(wanted)})
    answer = by_onnxruntime(model, given)
    require_same(by_importer(model, given), answer)
    require_same(run(normalize(load_model(model).mod), [x, y]), answer)
