"""Support vector machines and categories of ``ai.onnx.ml``, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    fresh,
    model_of,
    require_same,
)

_DOMAIN = "ai.onnx.ml"
_FEATURES = 4
_KERNELS = {"LINEAR": [], "RBF": [0.3, 0.0, 3.0], "POLY": [0.3, 0.5, 3.0], "SIGMOID": [0.2, 0.1]}


def compare(
    operator: str, outputs: list[str], x: Array, tolerance: float = 1e-4, **attributes: Any
) -> None:
    node = helper.make_node(operator, ["x"], outputs, domain=_DOMAIN, **attributes)
    model = model_of([node], {"x": x}, outputs, beyond=_DOMAIN)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}), tolerance)


def machine(
    kernel: str, coefficients: tuple[int, ...], supports: int, pairs: int
) -> dict[str, Any]:
    return {
        "kernel_type": kernel,
        "kernel_params": [*_KERNELS[kernel], 0.0, 0.0, 0.0][:3],
        "coefficients": fresh(*coefficients).ravel().tolist(),
        "support_vectors": fresh(supports, _FEATURES).ravel().tolist(),
        "rho": fresh(pairs).tolist(),
    }


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", _KERNELS)
def test_regressors(kernel: str, one_class: int) -> None:
    attributes = machine(kernel, (7,), 7, 1)
    x = fresh(6, _FEATURES)
    compare("SVMRegressor", ["y"], x, n_supports=7, one_class=one_class, **attributes)


def test_a_regressor_that_is_a_row_of_weights() -> None:
    weights = fresh(_FEATURES).tolist()
    attributes = {"coefficients": weights, "rho": [0.3], "kernel_params": [0.0] * 3}
    compare("SVMRegressor", ["y"], fresh(6, _FEATURES), kernel_type="LINEAR", **attributes)


@pytest.mark.parametrize("after", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("counts", [[3, 2], [2, 3, 4], [1, 3, 2, 2]], ids=len)
@pytest.mark.parametrize("kernel", _KERNELS)
def test_classifiers(kernel: str, counts: list[int], after: str) -> None:
    classes, supports = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    attributes = machine(kernel, (classes - 1, supports), supports, pairs)
    attributes |= {"vectors_per_class": counts, "post_transform": after}
    attributes["classlabels_ints"] = [10 + 3 * i for i in range(classes)]
    compare("SVMClassifier", ["label", "scores"], fresh(9, _FEATURES), **attributes)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities(classes: int) -> None:
    """They are found by iteration until they change by little, and classes by the scores."""
    pairs = classes * (classes - 1) // 2
    attributes = machine("RBF", (classes - 1, 3 * classes), 3 * classes, pairs)
    attributes |= {"vectors_per_class": [3] * classes, "classlabels_ints": [*range(classes)]}
    attributes |= {"prob_a": (-(fresh(pairs) ** 2)).tolist(), "prob_b": fresh(pairs).tolist()}
    compare("SVMClassifier", ["label", "scores"], fresh(40, _FEATURES), **attributes)


@pytest.mark.parametrize("kind", ["int64", "float32"])
@pytest.mark.parametrize("shape", [(6,), (6, 1), (3, 2)])
def test_categories(shape: tuple[int, ...], kind: str) -> None:
    x = np.random.default_rng().integers(0, 6, shape).astype(kind)
    compare("OneHotEncoder", ["y"], x, cats_int64s=[4, 1, 3], zeros=1)
