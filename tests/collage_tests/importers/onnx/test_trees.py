"""Ensembles of decision trees, beside onnxruntime and the standard's own evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

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
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")


def table(rows: int, features: int, dtype: str = "float32") -> Array:
    """Steps of a quarter, on which thresholds lie too, and some that are not a number."""
    rng = np.random.default_rng()
    x = (rng.integers(-4, 5, (rows, features)) / 4).astype(dtype)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def trees(count: int, depth: int, features: int, modes: Sequence[str] = ("LEQ",)) -> dict[str, Any]:
    """Attributes of full trees with fresh thresholds, of which one branch ends early."""
    rng = np.random.default_rng()
    columns = ["treeids", "nodeids", "featureids", "values", "modes", "truenodeids"]
    columns += ["falsenodeids", "missing_value_tracks_true"]
    found: dict[str, list[Any]] = {f"nodes_{name}": [] for name in columns}
    for tree in range(count):
        nodes = 2 ** (depth + 1) - 1
        for i in range(nodes):
            # The second node is a leaf: nobody comes to what would be below it.
            inner = 2 * i + 2 < nodes and i != 1
            found["nodes_treeids"].append(tree)
            found["nodes_nodeids"].append(i)
            found["nodes_featureids"].append(int(rng.integers(features)))
            found["nodes_values"].append(float(rng.integers(-4, 5) / 4))
            found["nodes_modes"].append(f"BRANCH_{rng.choice(modes)}" if inner else "LEAF")
            found["nodes_truenodeids"].append(2 * i + 1 if inner else 0)
            found["nodes_falsenodeids"].append(2 * i + 2 if inner else 0)
            found["nodes_missing_value_tracks_true"].append(int(rng.integers(2)))
    return found


def leaves_of(attributes: dict[str, Any]) -> list[tuple[int, int]]:
    names = zip(*(attributes[f"nodes_{n}"] for n in ("treeids", "nodeids", "modes")), strict=True)
    return [(tree, node) for tree, node, mode in names if mode == "LEAF"]


def regression(given: dict[str, Any], targets: int, **more: Any) -> dict[str, Any]:
    """Every leaf speaks of all targets."""
    ends = [(t, n, k) for t, n in leaves_of(given) for k in range(targets)]
    return {
        **given,
        **{
            f"target_{n}": [e[i] for e in ends] for i, n in enumerate(("treeids", "nodeids", "ids"))
        },
        "target_weights": np.random.default_rng().uniform(-1, 1, len(ends)).tolist(),
        "n_targets": targets,
        **more,
    }


def _model(
    operator: str, x: Array, outputs: list[str], attributes: dict[str, Any]
) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], outputs, domain=_DOMAIN, **attributes)
    return model_of([node], {"x": x}, outputs, beyond=_DOMAIN)


def _compare(operator: str, x: Array, outputs: list[str], attributes: dict[str, Any]) -> None:
    model = _model(operator, x, outputs, attributes)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("has_base", [False, True])
def test_regression(has_base: bool, targets: int, how: str) -> None:
    base = {"base_values": [0.5, -0.5][:targets]} if has_base else {}
    given = regression(trees(7, 3, 6), targets, aggregate_function=how, **base)
    _compare("TreeEnsembleRegressor", table(50, 6), ["y"], given)


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_leaves_that_say_several_numbers(targets: int, how: str) -> None:
    given = regression(trees(3, 2, 4), targets, aggregate_function=how)
    for name in ("treeids", "nodeids", "ids"):
        given[f"target_{name}"] = given[f"target_{name}"] * 2
    more = np.random.default_rng().uniform(-1, 1, len(given["target_weights"]))
    given["target_weights"] = [*given["target_weights"], *more.tolist()]
    _compare("TreeEnsembleRegressor", table(33, 4), ["y"], given)


@pytest.mark.parametrize("mode", _MODES)
def test_every_comparison_at_thresholds_and_without_numbers(mode: str) -> None:
    _compare("TreeEnsembleRegressor", table(90, 4), ["y"], regression(trees(5, 3, 4, [mode]), 1))


def test_comparisons_of_every_kind_in_one_tree() -> None:
    given = regression(trees(9, 4, 4, _MODES), 2)
    _compare("TreeEnsembleRegressor", table(90, 4), ["y"], given)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("weights", ["positive", "any"])
@pytest.mark.parametrize("classes", [2, 3])
def test_classes(classes: int, weights: str, transform: str) -> None:
    attributes = _classes(classes, 1 if weights == "positive" else 5, weights)
    _compare(
        *("TreeEnsembleClassifier", table(60, 4), ["label", "scores"]),
        {**attributes, "post_transform": transform},
    )


def _classes(classes: int, count: int, weights: str = "any") -> dict[str, Any]:
    given = trees(count, 3, 4)
    ends = leaves_of(given)
    low = 0.01 if weights == "positive" else -1.0
    return {
        **given,
        **{f"class_{n}": [e[i] for e in ends] for i, n in enumerate(("treeids", "nodeids"))},
        "class_ids": [0 if classes == 2 else i % classes for i in range(len(ends))],
        "class_weights": np.random.default_rng().uniform(low, 1, len(ends)).tolist(),
        "classlabels_int64s": [7, 2, 4][:classes],
    }


def test_trees_of_one_class_each() -> None:
    """As boosting has them."""
    given = trees(6, 3, 4)
    ends = leaves_of(given)
    attributes = {
        **given,
        **{f"class_{n}": [e[i] for e in ends] for i, n in enumerate(("treeids", "nodeids"))},
        "class_ids": [tree % 3 for tree, _ in ends],
        "class_weights": np.random.default_rng().uniform(-1, 1, len(ends)).tolist(),
        "classlabels_int64s": [7, 2, 4],
        "post_transform": "SOFTMAX",
        "base_values": [0.1, 0.2, -0.3],
    }
    _compare("TreeEnsembleClassifier", table(60, 4), ["label", "scores"], attributes)


@pytest.mark.parametrize("operator", ["TreeEnsembleRegressor", "TreeEnsembleClassifier"])
def test_in_float64(operator: str) -> None:
    """Thresholds that float32 does not have, and features on either side of them."""
    given = regression(trees(5, 3, 4), 2) if operator.endswith("Regressor") else _classes(3, 5)
    what = "target" if operator.endswith("Regressor") else "class"
    close = 1 / 3 + np.random.default_rng().integers(-3, 4, len(given["nodes_values"])) * 1e-12
    for name, values in (("nodes_values", close), (f"{what}_weights", None)):
        listed = np.asarray(given.pop(name) if values is None else values, "float64")
        given.pop(name, None)
        given[f"{name}_as_tensor"] = numpy_helper.from_array(listed)
    x = 1 / 3 + np.random.default_rng().integers(-3, 4, (80, 4)) * 1e-12
    outputs = ["y"] if what == "target" else ["label", "scores"]
    model = _model(operator, x, outputs, given)
    model.opset_import[-1].version = 3
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


def later(dtype: str, **more: Any) -> dict[str, Any]:
    """Attributes of two trees of ``TreeEnsemble``, of every comparison and one of sets."""
    rng = np.random.default_rng()
    sets = [[-2, 1, 4, np.nan, 0, np.nan], [3, np.nan, -4, -1, 2, np.nan]]
    modes = [0, 6, 2, 3, 4, 5, 6, 1]
    return {
        "nodes_modes": numpy_helper.from_array(np.asarray(modes, "uint8")),
        "nodes_featureids": rng.integers(0, 4, 8).tolist(),
        "nodes_splits": numpy_helper.from_array(rng.integers(-4, 5, 8).astype(dtype)),
        "nodes_truenodeids": [1, 3, 1, 3, 5, 6, 6, 8],
        "nodes_trueleafs": [0, 0, 1, 1, 0, 0, 1, 1],
        "nodes_falsenodeids": [2, 0, 2, 4, 7, 5, 7, 9],
        "nodes_falseleafs": [0, 1, 1, 1, 0, 1, 1, 1],
        "tree_roots": [0, 4],
        "leaf_targetids": [int(k) for k in rng.integers(0, 2, 10)],
        "leaf_weights": numpy_helper.from_array(rng.uniform(-1, 1, 10).astype(dtype)),
        "membership_values": numpy_helper.from_array(np.asarray(sets[int(rng.integers(2))], dtype)),
        "n_targets": 2,
        **more,
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", range(4))
def test_trees_of_the_later_operator(how: int, dtype: str) -> None:
    x = np.nan_to_num(table(60, 4, dtype) * 4, nan=0.5)
    model = _model("TreeEnsemble", x, ["y"], later(dtype, aggregate_function=how))
    model.opset_import[-1].version = 5
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


def _one_tree(**attributes: Any) -> dict[str, Any]:
    """A tree of one split and two leaves."""
    return {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        **attributes,
    }


def _two_leaves(**attributes: Any) -> dict[str, Any]:
    return _one_tree(
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        **{"target_ids": [0, 0], "target_weights": [0.25, 0.5], **attributes},
    )


def test_a_target_that_no_leaf_speaks_of_has_no_base() -> None:
    x = np.array([[-1.0, 2.0], [1.0, 3.0]], "float32")
    attributes = _two_leaves(target_ids=[0, 1], n_targets=3, base_values=[1.0, 2.0, 3.0])
    _compare("TreeEnsembleRegressor", x, ["y"], attributes)


def test_the_only_target_has_its_base_wherever_a_row_ends() -> None:
    x = np.array([[-1.0, 2.0], [1.0, 3.0]], "float32")
    attributes = _one_tree(
        target_treeids=[0], target_nodeids=[1], target_ids=[0], target_weights=[0.25], n_targets=1
    )
    _compare("TreeEnsembleRegressor", x, ["y"], {**attributes, "base_values": [1.5]})


def test_labels_that_are_strings_are_given_as_numbers(caplog: pytest.LogCaptureFixture) -> None:
    attributes = _classes(3, 5)
    attributes["classlabels_strings"] = ["rose", "iris", "tulip"]
    del attributes["classlabels_int64s"]
    x = table(20, 4)
    model = _model("TreeEnsembleClassifier", x, ["label", "scores"], attributes)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    label, scores = by_onnxruntime(model, {"x": x})
    found = by_importer(model, {"x": x})
    assert [attributes["classlabels_strings"][i] for i in found[0]] == label.tolist()
    require_same(found[1:], [scores])
    assert "'label' has strings" in caplog.text and "'rose', 'iris', 'tulip'" in caplog.text


def test_labels_that_are_strings_are_looked_up_by_their_numbers() -> None:
    attributes, x = _classes(3, 5), table(20, 4)
    attributes["classlabels_strings"] = ["rose", "iris", "tulip"]
    del attributes["classlabels_int64s"]
    nodes = [
        helper.make_node("TreeEnsembleClassifier", ["x"], ["l", "s"], domain=_DOMAIN, **attributes),
        helper.make_node(
            *("LabelEncoder", ["l"], ["label"]),
            **{"domain": _DOMAIN, "keys_strings": ["rose"], "values_int64s": [4]},
        ),
    ]
    model = model_of(nodes, {"x": x}, ["label", "s"], beyond=_DOMAIN)
    model.opset_import[-1].version = 2
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (_two_leaves(post_transform="LOGISTIC"), "a post_transform of one target"),
        (_two_leaves(target_ids=[0, 1]), "it names target 1, and there are 1"),
        (_two_leaves(nodes_featureids=[2, 0, 0]), "it names feature 2, and there are 2"),
        (_two_leaves(nodes_truenodeids=[0, 0, 0]), "its nodes lead in a circle"),
        (_two_leaves(nodes_truenodeids=[7, 0, 0]), "tree 0 has no node 7"),
        (_two_leaves(nodes_modes=["BRANCH_NEAR", "LEAF", "LEAF"]), "the comparison NEAR"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_ensemble_is_made_of_is_refused(attributes: dict[str, Any], reason: str) -> None:
    model = _model("TreeEnsembleRegressor", np.zeros((2, 2), "float32"), ["y"], attributes)
    with pytest.raises(ModelError, match=reason):
        load_model(model)


def test_scores_of_the_second_of_two_classes_are_refused() -> None:
    attributes = _one_tree(
        class_treeids=[0, 0],
        class_nodeids=[1, 2],
        class_ids=[1, 1],
        class_weights=[0.25, 0.5],
        classlabels_int64s=[0, 1],
    )
    x = np.zeros((2, 2), "float32")
    model = _model("TreeEnsembleClassifier", x, ["label", "scores"], attributes)
    with pytest.raises(ModelError, match="scores of the second of two classes alone"):
        load_model(model)
