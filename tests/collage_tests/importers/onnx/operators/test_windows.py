"""Operators that look at windows of a picture: maxima and their places, regions, moved samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    fresh,
    model_of,
    require_same,
)


def test_places_of_maxima() -> None:
    x = fresh(2, 3, 7, 8)
    for attributes in (
        {"pads": [1, 0, 1, 1], "strides": [2, 2]},
        {"storage_order": 1, "strides": [2, 3], "ceil_mode": 1},
        {"dilations": [2, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 1]},
    ):
        node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 3], **attributes)
        model = model_of([node], {"x": x}, ["y", "i"])
        require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}), 0)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("extents", [(11,), (7, 8), (5, 6, 7)])
@pytest.mark.parametrize("reach", [2, 3])
def test_maxima_of_windows_that_pad_themselves(
    reach: int, extents: tuple[int, ...], auto_pad: str
) -> None:
    """As many as there are strides, begun ones too: TVM's importer leaves one out."""
    x, rank = fresh(2, 3, *extents), len(extents)
    for stride in range(1, reach + 1):
        kernel, strides = [reach] * rank, [stride] * rank
        node = helper.make_node(
            *("MaxPool", ["x"], ["y"]), kernel_shape=kernel, strides=strides, auto_pad=auto_pad
        )
        model = model_of([node], {"x": x}, ["y"])
        require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}), 0)


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_at_any_scale(mode: str, scale: float, ratio: int, opset: int) -> None:
    """Moved by half a pixel of what is looked at, not of what the regions are measured in; the
    maximum is that of neighbours with their weights."""
    x, rng = fresh(2, 3, 9, 8), np.random.default_rng()
    begin = rng.uniform(0, 4, (5, 2))
    regions = np.concatenate([begin, begin + rng.uniform(1, 4, (5, 2))], 1)
    # Of whole eighths, how many samples a region has is the same however it is computed.
    regions = (np.round(regions * 8) / 8 / scale).astype("float32")
    images = rng.integers(0, 2, 5)
    sizes = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio, "mode": mode}
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], spatial_scale=scale, **sizes)
    given = {"x": x, "r": regions, "i": images}
    model = model_of([node], given, ["y"], opset=opset)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        ((7, 6), {"pads": [1, 1, 1, 1], "group": 2, "offset_group": 2}),
        ((3, 2), {"strides": [2, 2], "pads": [0, 1, 0, 0], "dilations": [1, 2]}),
    ],
)
def test_deformable_convolution(
    size: tuple[int, int], attributes: dict[str, Any], masked: bool, biased: bool
) -> None:
    """Offsets reach beyond the borders, too."""
    parts = attributes.get("offset_group", 1)
    constants = {"w": fresh(6, 4 // attributes.get("group", 1), 3, 3)}
    inputs = {"x": fresh(2, 4, 7, 6), "offsets": 4 * fresh(2, parts * 18, *size)}
    if masked:
        inputs["mask"] = fresh(2, parts * 9, *size)
    if biased:
        constants["b"] = fresh(6)
    names = ["x", "w", "offsets", "b" if biased else "", "mask" if masked else ""]
    node = helper.make_node("DeformConv", names, ["y"], **attributes)
    model = model_of([node], inputs, ["y"], constants, opset=19)
    require_same(by_importer(model, inputs), by_onnxruntime(model, inputs))
