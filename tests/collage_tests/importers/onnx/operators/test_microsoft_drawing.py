"""onnxruntime's operators of networks that draw, and those that the standard has meanwhile."""

from __future__ import annotations

import math
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

_DOMAIN = "com.microsoft"


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("skip", ["", "whole", "per channel"])
def test_group_normalization(skip: str, activation: int, channels_last: int) -> None:
    """onnxruntime has it on GPUs only."""
    x, scale, shift = fresh(2, 5, 6, 8), fresh(8), fresh(8)
    given = {"x": x if channels_last else np.moveaxis(x, -1, 1).copy()}
    constants, names, outputs = {"scale": scale, "shift": shift}, ["x", "scale", "shift"], ["y"]
    total = x
    if skip:
        added = fresh(2, 5, 6, 8) if skip == "whole" else fresh(2, 8)
        bias = fresh(8)
        total = x + (added if skip == "whole" else added[:, None, None]) + bias
        if skip == "whole" and not channels_last:
            added = np.moveaxis(added, -1, 1).copy()
        given["added"] = added
        constants["bias"] = bias
        names += ["added", "bias"]
        outputs.append("total")
    node = helper.make_node(
        *("SkipGroupNorm" if skip else "GroupNorm", names, outputs),
        domain=_DOMAIN,
        groups=4,
        activation=activation,
        channels_last=channels_last,
        epsilon=1e-5,
    )
    parts = total.reshape(2, 30, 4, 2).astype("float64")
    mean, variance = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    wanted = ((parts - mean) / np.sqrt(variance + 1e-5)).reshape(total.shape) * scale + shift
    if activation:
        wanted = wanted / (1 + np.exp(-wanted))
    results = [wanted.astype("float32"), total][: len(outputs)]
    if not channels_last:
        results = [np.moveaxis(one, -1, 1) for one in results]
    model = model_of([node], given, outputs, constants, beyond=_DOMAIN)
    require_same(by_importer(model, given), results)


def test_gates_that_stand_beside_what_they_open() -> None:
    x, bias = fresh(2, 5, 64), fresh(64)
    node = helper.make_node("BiasSplitGelu", ["x", "bias"], ["y"], domain=_DOMAIN)
    left, right = np.split((x + bias).astype("float64"), 2, -1)
    wanted = left * right * 0.5 * (1 + np.vectorize(math.erf)(right / math.sqrt(2)))
    model = model_of([node], {"x": x}, ["y"], {"bias": bias}, beyond=_DOMAIN)
    require_same(by_importer(model, {"x": x}), [wanted.astype("float32")])


def test_a_sum_of_three() -> None:
    x, bias, skip = fresh(2, 4, 320), fresh(320), fresh(2, 4, 320)
    node = helper.make_node("BiasAdd", ["x", "bias", "skip"], ["y"], domain=_DOMAIN)
    given = {"x": x, "skip": skip}
    model = model_of([node], given, ["y"], {"bias": bias}, beyond=_DOMAIN)
    require_same(by_importer(model, given), [x + bias + skip])


@pytest.mark.parametrize(
    ("operator", "constants", "attributes"),
    [
        ("Trilu", {}, {}),
        ("Trilu", {"k": np.array(-1)}, {"upper": 0}),
        ("ExpandDims", {"axis": np.array(1, "int32")}, {}),
        ("QuantizeLinear", {"scale": np.array(0.02, "float32"), "zero": np.array(3, "uint8")}, {}),
        ("TransposeMatMul", {"other": fresh(5, 4)}, {"transA": 1, "alpha": 0.5}),
    ],
)
def test_what_the_standard_has_meanwhile(
    operator: str, constants: dict[str, Any], attributes: dict[str, Any]
) -> None:
    x = fresh(5, 6)
    node = helper.make_node(operator, ["x", *constants], ["y"], domain=_DOMAIN, **attributes)
    model = model_of([node], {"x": x}, ["y"], constants, beyond=_DOMAIN)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))
