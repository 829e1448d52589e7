"""Operators on tables, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    model_of,
    require_same,
)

_DOMAIN = "ai.onnx.ml"


def table(rows: int, features: int) -> Array:
    return np.random.default_rng().uniform(-1, 1, (rows, features)).astype("float32")


def node_of(operator: str, names: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(operator, names, outputs, domain=_DOMAIN, **attributes)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Scaler", {"offset": [0.1, 0.2, -0.3], "scale": [2.0, 0.5, 1.0]}),
        ("Scaler", {"offset": [0.1], "scale": [2.0]}),
        ("Imputer", {"imputed_value_floats": [5.0, 6.0, 7.0], "replaced_value_float": 0.25}),
        ("Imputer", {"imputed_value_floats": [5.0], "replaced_value_float": float("nan")}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Binarizer", {"threshold": 0.2}),
        ("LinearRegressor", {"coefficients": [1.0, -2.0, 0.5], "intercepts": [0.3]}),
        ("LinearRegressor", {"coefficients": [0.1 * i for i in range(6)], "targets": 2}),
    ],
    ids=lambda v: v if isinstance(v, str) else "-".join(v),
)
def test_what_gives_one_table(operator: str, attributes: dict[str, Any]) -> None:
    x = table(5, 3)
    x[1, 1] = attributes.get("replaced_value_float", 0.25)
    model = model_of(
        [node_of(operator, ["x"], ["y"], **attributes)], {"x": x}, ["y"], beyond=_DOMAIN
    )
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        ("int64", {"keys_int64s": [3, 0, 7], "values_int64s": [10, 20, 30]}),
        ("int64", {"keys_int64s": [0, 2], "values_floats": [0.5, 0.7], "default_float": 0.1}),
        ("float32", {"keys_floats": [2.0, 2.0, 0.5], "values_int64s": [5, 6, 7]}),
        ("float32", {"keys_floats": [1.0, 3.0], "values_floats": [-1.0, -2.0]}),
    ],
    ids=["numbers", "a default", "a key twice", "floats"],
)
def test_numbers_looked_up_in_a_table(dtype: str, attributes: dict[str, Any]) -> None:
    x = np.random.default_rng().integers(0, 8, (5, 6)).astype(dtype)
    x[0, :4] = [0, 2, 3, 7]
    node = node_of("LabelEncoder", ["x"], ["y"], **attributes)
    model = model_of([node], {"x": x}, ["y"], beyond=_DOMAIN)
    model.opset_import[-1].version = 2
    kind = TensorProto.INT64 if "values_int64s" in attributes else TensorProto.FLOAT
    model.graph.output[0].type.tensor_type.elem_type = kind
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


def test_a_key_that_is_no_number_is_refused() -> None:
    keys = {"keys_floats": [1.0, float("nan")], "values_int64s": [3, 4]}
    model = model_of(
        [node_of("LabelEncoder", ["x"], ["y"], **keys)], {"x": table(2, 2)}, ["y"], beyond=_DOMAIN
    )
    model.opset_import[-1].version = 2
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(ModelError, match="not a number"):
        load_model(model)


def test_strings_looked_up_are_numbers_between() -> None:
    x = np.array([[0, 1], [3, 0]])
    node = node_of("LabelEncoder", ["x"], ["h"], keys_int64s=[0], values_strings=["a"])
    other = node_of("LabelEncoder", ["h"], ["y"], keys_strings=["a"], values_int64s=[4])
    model = model_of([node, other], {"x": x}, ["y"], beyond=_DOMAIN)
    model.opset_import[-1].version = 2
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize(
    "labels",
    [{"classlabels_int64s": [4, 2, 9]}, {"classlabels_strings": ["b", "a", "c"]}],
    ids=["numbers", "strings"],
)
def test_maps_at_the_end_are_given_as_a_table(
    labels: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As scikit-learn's exporter writes a classifier by default."""
    x = table(4, 3)
    sure = helper.make_node("Softmax", ["x"], ["p"])
    maps = node_of("ZipMap", ["p"], ["probabilities"], **labels)
    model = model_of([sure, maps], {"x": x}, ["probabilities"], beyond=_DOMAIN)
    given = model.graph.output[0]
    key = TensorProto.INT64 if "classlabels_int64s" in labels else TensorProto.STRING
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(key, number))
    given.type.CopyFrom(kind)
    (wanted,) = by_onnxruntime(model, {"x": x})
    names = next(iter(labels.values()))
    columns = np.asarray([[row[name] for name in names] for row in wanted], "float32")
    loaded = load_model(model)
    assert [output.name for output in loaded.outputs] == ["probabilities"]
    require_same(by_importer(model, {"x": x}), [columns])
    assert "ZipMap" in caplog.text and str(names) in caplog.text


def test_features_chosen_and_joined() -> None:
    x, y = table(4, 5), table(4, 2)
    nodes = [
        node_of("ArrayFeatureExtractor", ["x", "places"], ["some"]),
        node_of("FeatureVectorizer", ["some", "y"], ["z"], inputdimensions=[3, 2]),
    ]
    places = {"places": np.asarray([4, 0, 2])}
    model = model_of(nodes, {"x": x, "y": y}, ["z"], places, beyond=_DOMAIN)
    given = {"x": x, "y": y}
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifier(classes: int, transform: str) -> None:
    x = table(9, 4)
    count = 1 if classes == 2 else classes
    if count == 1 and transform == "SOFTMAX":
        pytest.skip("a softmax of one score is refused")
    weights = np.random.default_rng().uniform(-1, 1, (count, 4))
    attributes = {
        "coefficients": weights.reshape(-1).tolist(),
        "intercepts": [0.1 * i for i in range(count)],
        "classlabels_ints": [3, 5, 8][:classes],
        "post_transform": transform,
    }
    _compare("LinearClassifier", x, ["label", "scores"], attributes)


def _compare(operator: str, x: Array, outputs: list[str], attributes: dict[str, Any]) -> None:
    model = model_of(
        [node_of(operator, ["x"], outputs, **attributes)], {"x": x}, outputs, beyond=_DOMAIN
    )
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize(
    ("operator", "outputs", "attributes", "reason"),
    [
        ("LinearRegressor", ["y"], {"coefficients": [1.0] * 4}, "2 rows of coefficients for 1"),
        ("FeatureVectorizer", ["y"], {"inputdimensions": [1]}, "another number of columns"),
    ],
)
def test_what_onnxruntime_answers_otherwise_is_refused(
    operator: str, outputs: list[str], attributes: dict[str, Any], reason: str
) -> None:
    node = node_of(operator, ["x"], outputs, **attributes)
    model = model_of([node], {"x": table(2, 2)}, outputs, beyond=_DOMAIN)
    with pytest.raises(ModelError, match=reason):
        load_model(model)
