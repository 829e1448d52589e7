"""Normalizations with a converter of their own, and their further results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    by_reference,
    fresh,
    model_of,
    require_same,
)


def test_norms_with_their_further_results() -> None:
    given = {"x": fresh(2, 3, 4), "w": fresh(4), "b": fresh(4)}
    node = helper.make_node("LayerNormalization", list(given), ["y", "m", "d"], axis=-1)
    model = model_of([node], given, ["y", "m", "d"])
    require_same(by_importer(model, given), by_onnxruntime(model, given))
    # In training mode a batch norm normalizes by what it sees, and says so.
    given = {"x": fresh(2, 3, 4), "s": fresh(3), "b": fresh(3), "m": fresh(3), "v": fresh(3) + 2}
    node = helper.make_node(
        "BatchNormalization", list(given), ["y", "rm", "rv"], training_mode=1, momentum=0.7
    )
    model = model_of([node], given, ["y", "rm", "rv"])
    require_same(by_importer(model, given), by_reference(model, given))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_local_response_norms(size: int) -> None:
    x = fresh(1, 6, 3, 3)
    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.5, bias=1.5)
    model = model_of([node], {"x": x}, ["y"])
    # The standard's formula: its evaluator leaves out a factor, and onnxruntime even windows.
    total = np.zeros_like(x)
    for channel in range(6):
        window = slice(max(0, channel - (size - 1) // 2), channel + size // 2 + 1)
        total[:, channel] = (x[:, window] ** 2).sum(1)
    require_same(by_importer(model, {"x": x}), [x / (1.5 + 0.5 / size * total) ** 0.75])


def _batch_norm(outputs: list[str], own: tuple[int, ...] = (3,), **more: int) -> Any:
    given = {"x": fresh(2, 3, 4), "s": fresh(*own), "b": fresh(*own), "m": fresh(*own)}
    given["v"] = fresh(*own) + 2
    node = helper.make_node("BatchNormalization", list(given), outputs, momentum=0.7, **more)
    return node, given


@pytest.mark.parametrize("opset", [7, 8, 9, 13])
def test_older_batch_norms_train_where_they_have_further_results(opset: int) -> None:
    outputs = ["y", "rm", "rv", "sm", "sv"]
    node, given = _batch_norm(outputs)
    # Whether or not somebody reads them.
    for used in (1, 3, 4):
        model = model_of([node], given, outputs[:used], opset=opset)
        require_same(by_importer(model, given), by_onnxruntime(model, given))
    # The standard and onnxruntime do not agree on the fifth.
    with pytest.raises(ModelError, match="its fifth result is used"):
        load_model(model_of([node], given, outputs, opset=opset))


@pytest.mark.parametrize("opset", [7, 8])
def test_older_batch_norms_have_numbers_for_each_place(opset: int) -> None:
    node, given = _batch_norm(["y"], (3, 4), spatial=0)
    model = model_of([node], given, ["y"], opset=opset)
    require_same(by_importer(model, given), by_onnxruntime(model, given))
