"""Pictures made larger and smaller, beside the standard's reference or onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    by_reference,
    fresh,
    model_of,
    require_same,
)

_WALKS = ["half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric", "pytorch_half_pixel"]


@pytest.mark.parametrize("walk", _WALKS)
@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "nearest", "nearest_mode": "floor"},
        {"mode": "nearest", "nearest_mode": "ceil"},
        {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
        {"mode": "linear"},
        {"mode": "linear", "antialias": 1},
        {"mode": "cubic", "cubic_coeff_a": -0.5},
        {"mode": "cubic", "antialias": 1},
        {"mode": "cubic", "exclude_outside": 1},
    ],
    ids=lambda a: "-".join(str(v) for v in a.values()),
)
def test_resize(walk: str, attributes: dict[str, Any]) -> None:
    """Up along one axis and down along another, at a ratio that leaves parts of elements."""
    x = fresh(1, 2, 7, 9)
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], coordinate_transformation_mode=walk, **attributes
    )
    scales = np.array([1, 1, 0.61, 1.73], np.float32)
    model = model_of([node], {"x": x}, ["y"], {"scales": scales}, opset=19)
    # A middle element lies on a whole place, which the standard's float64 misses.
    central = walk == "half_pixel_symmetric" and attributes["mode"] == "nearest"
    wanted = (by_onnxruntime if central else by_reference)(model, {"x": x})
    require_same(by_importer(model, {"x": x}), wanted)


def _placed(*shape: int) -> Array:
    """Elements that tell where they were."""
    return np.arange(np.prod(shape), dtype="float32").reshape(1, 1, *shape)


@pytest.mark.parametrize("near", ["floor", "ceil", "round_prefer_ceil", "round_prefer_floor"])
@pytest.mark.parametrize("walk", ["half_pixel", "asymmetric", "pytorch_half_pixel"])
def test_resize_takes_the_elements_that_onnxruntime_takes(walk: str, near: str) -> None:
    """Extents and places that are whole, or halves, but for what float32 misses."""
    for extents, scales in [
        ((10, 10), (0.7, 0.3)),
        ((11, 11), (1.2, 0.6)),
        ((8, 17), (1.1, 2.4)),
        ((14, 7), (0.9, 1 / 3)),
    ]:
        x = _placed(*extents)
        node = helper.make_node(
            *("Resize", ["x", "", "scales"], ["y"]),
            mode="nearest",
            nearest_mode=near,
            coordinate_transformation_mode=walk,
        )
        given = {"scales": np.array([1, 1, *scales], np.float32)}
        model = model_of([node], {"x": x}, ["y"], given, opset=19)
        (found,), (wanted,) = by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x})
        assert np.array_equal(found, wanted), (extents, scales)


@pytest.mark.parametrize("sizes", [(24, 28), (4, 19), (21, 9)])
@pytest.mark.parametrize("near", ["floor", "ceil", "round_prefer_ceil", "round_prefer_floor"])
def test_resize_to_sizes_takes_the_same_elements(sizes: tuple[int, int], near: str) -> None:
    x = _placed(10, 13)
    for walk in ("half_pixel", "asymmetric", "align_corners"):
        node = helper.make_node(
            *("Resize", ["x", "", "", "sizes"], ["y"]),
            mode="nearest",
            nearest_mode=near,
            coordinate_transformation_mode=walk,
        )
        given = {"sizes": np.array([1, 1, *sizes])}
        model = model_of([node], {"x": x}, ["y"], given, opset=19)
        (found,), (wanted,) = by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x})
        assert np.array_equal(found, wanted), walk


@pytest.mark.parametrize("height", [7, 1])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_of_aligned_corners_to_one_element(mode: str, height: int) -> None:
    x = fresh(1, 2, height, 6)
    node = helper.make_node(
        *("Resize", ["x", "", "", "sizes"], ["y"]),
        mode=mode,
        coordinate_transformation_mode="align_corners",
    )
    model = model_of([node], {"x": x}, ["y"], {"sizes": np.array([1, 2, 1, 12])}, opset=19)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


def test_an_old_resize_down_takes_the_next_element() -> None:
    x = _placed(7, 9)
    node = helper.make_node("Resize", ["x", "scales"], ["y"], mode="nearest")
    scales = np.array([1, 1, 0.6, 1.7], np.float32)
    model = model_of([node], {"x": x}, ["y"], {"scales": scales}, opset=10)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_resize_of_chosen_axes_to_sizes(policy: str) -> None:
    x = fresh(6, 2, 9, 3)
    node = helper.make_node(
        *("Resize", ["x", "", "", "sizes"], ["y"]),
        axes=[2, 0],
        mode="linear",
        keep_aspect_ratio_policy=policy,
    )
    model = model_of([node], {"x": x}, ["y"], {"sizes": np.array([5, 11])}, opset=19)
    require_same(by_importer(model, {"x": x}), by_reference(model, {"x": x}))


def test_resize_of_a_region() -> None:
    x = fresh(1, 1, 5, 6)
    node = helper.make_node(
        *("Resize", ["x", "roi", "", "sizes"], ["y"]),
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.5,
    )
    roi = np.array([0, 0, 0.3, 0.2, 1, 1, 1.2, 0.9], np.float32)
    constants = {"roi": roi, "sizes": np.array([1, 1, 4, 7])}
    model = model_of([node], {"x": x}, ["y"], constants, opset=19)
    require_same(by_importer(model, {"x": x}), by_reference(model, {"x": x}))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_by_attributes(mode: str) -> None:
    """Of operator set 7, where its scales are no input."""
    x = fresh(1, 2, 3, 4)
    node = helper.make_node("Upsample", ["x"], ["y"], mode=mode, scales=[1.0, 1.0, 2.0, 3.0])
    model = model_of([node], {"x": x}, ["y"], opset=7)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("given", ["scales", "sizes"])
def test_regions_and_scales_that_set_11_leaves_empty(given: str) -> None:
    """A tensor without elements says there that an input is left out, as PyTorch writes it."""
    x, nothing = fresh(1, 2, 4, 5), np.zeros(0, "float32")
    constants = {"roi": nothing, "scales": nothing, "sizes": np.array([1, 2, 8, 10])}
    if given == "scales":
        constants = {"roi": nothing, "scales": np.array([1, 1, 2, 2], "float32")}
    node = helper.make_node("Resize", ["x", *constants], ["y"], mode="linear")
    model = model_of([node], {"x": x}, ["y"], constants, opset=11)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))
