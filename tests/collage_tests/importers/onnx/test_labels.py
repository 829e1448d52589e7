"""Strings that a model chooses among, given as their numbers, beside onnxruntime's strings."""

from __future__ import annotations

import ast
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    require_same,
)

_HEAD = '<ir_version: 8, opset_import: ["" : 19, "ai.onnx.ml" : 3]>'
_CLASSIFIER = """l, s = ai.onnx.ml.LinearClassifier<classlabels_strings = ["rose", "iris", "oak"],
    coefficients = [0.5, -1.0, 0.7, 0.2, -0.3, 0.4], intercepts = [0.1, 0.2, -0.3]>(x)"""
_ENCODED = """a = ArgMax<axis = 1, keepdims = 0>(x)
    l = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1], values_strings = ["one", "two"]>(a)"""

BODIES = {
    "moved": f"{_CLASSIFIER} i = Identity(l) y = Reshape(i, column)",
    "chosen from a list": (
        'list = Constant<value_strings = ["a", "b", "c"]>() i = ArgMax<axis = 1>(x)'
        "z = ai.onnx.ml.ArrayFeatureExtractor(list, i) y = Reshape(z, column)"
    ),
    "gathered": (
        'list = Constant<value = string[2] {"a", "b"}>() i = ArgMax<axis = 1>(x)y = Gather(list, i)'
    ),
    "encoded": f"{_ENCODED} y = Unsqueeze(l, one)",
    "two that meet": (
        f'{_CLASSIFIER} other = Constant<value_string = "none">() half = Constant<value = float'
        " {0.2}>() m = ReduceMax<keepdims = 0>(s, one) sure = Greater(m, half)"
        "w = Where(sure, l, other) y = Reshape(w, column)"
    ),
}


def model_of(body: str, y: str) -> onnx.ModelProto:
    lists = "<int64[2] column = {-1, 1}, int64[1] one = {1}>"
    return onnx.parser.parse_model(f"{_HEAD} net (float[9, 2] x) => ({y}) {lists} {{ {body} }}")


def table() -> Array:
    return np.random.default_rng().standard_normal((9, 2)).astype("float32")


@pytest.mark.parametrize("body", BODIES)
def test_strings_are_given_as_numbers(body: str, caplog: pytest.LogCaptureFixture) -> None:
    model, x = model_of(BODIES[body], "string[9, 1] y"), table()
    (wanted,) = by_onnxruntime(model, {"x": x})
    (found,) = by_importer(model, {"x": x})
    said = re.search(r"in this order: (\[.*\])", caplog.text)
    assert said
    strings = np.asarray(ast.literal_eval(said[1]))
    assert found.dtype == "int64"
    assert np.array_equal(strings[found], wanted.astype(strings.dtype))


def test_strings_that_are_looked_up_become_other_numbers() -> None:
    body = (
        f"{_CLASSIFIER} n = ai.onnx.ml.LabelEncoder<keys_strings = "
        '["oak", "elm", "rose"], values_floats = [1.5, 2.5, 3.5], default_float = -7.0>(l)'
        "y = Reshape(n, column)"
    )
    model, x = model_of(body, "float[9, 1] y"), table()
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


def test_strings_that_are_compared() -> None:
    body = f'{_CLASSIFIER} rose = Constant<value_strings = ["rose"]>() y = Equal(l, rose)'
    model, x = model_of(body, "bool[9] y"), table()
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


def test_strings_that_are_computed_with_are_refused() -> None:
    body = f'{_CLASSIFIER} y = StringNormalizer<case_change_action = "UPPER">(l)'
    with pytest.raises(ModelError, match="string"):
        load_model(model_of(body, "string[9] y"))
    given = onnx.parser.parse_model(
        f"{_HEAD} net (string[9] x) => (bool[9] y) "
        '{ rose = Constant<value_strings = ["rose"]>() y = Equal(x, rose) }'
    )
    assert given.graph.input[0].type.tensor_type.elem_type == TensorProto.STRING
    with pytest.raises(ModelError, match="string"):
        load_model(given)
