"""Normalizations with a converter of their own, and their further results."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

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
