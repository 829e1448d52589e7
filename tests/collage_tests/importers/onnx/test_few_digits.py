"""Graphs in float16 and bfloat16, of which onnxruntime folds none of the latter: beside float32."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes  # noqa: F401 - NumPy's name for bfloat16
import numpy as np
import onnx
import pytest
from onnx import helper

from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    fresh,
    model_of,
)

node = helper.make_node
Case = Callable[[str], tuple[onnx.ModelProto, dict[str, Array]]]


def _drawn(dtype: str, *shape: int) -> Array:
    """Numbers that bfloat16 has, in whatever type."""
    return fresh(*shape).astype("bfloat16").astype(dtype)


def _response(dtype: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    given = {"x": _drawn(dtype, 2, 6, 3, 3)}
    return model_of([node("LRN", ["x"], ["y"], size=3, alpha=0.5)], given, ["y"]), given


def _slopes(dtype: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    given = {"x": _drawn(dtype, 2, 6, 3, 3)}
    slopes = {"s": _drawn(dtype, 6, 1, 3)}
    return model_of([node("PRelu", ["x", "s"], ["y"])], given, ["y"], slopes), given


def _steps(dtype: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    given = {"x": _drawn(dtype, 2, 3, 4)}
    constants: dict[str, Array] = {
        "s": np.array([0.5, 0.25, 0.125], dtype),
        "z": np.array([3, 120, 250], "uint8"),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        node("DequantizeLinear", ["q", "s", "z"], ["r"], axis=1),
        node("DequantizeLinear", ["q", "s0"], ["y"]),
    ]
    constants["s0"] = np.array(2.0, dtype)
    return model_of(nodes, given, ["r", "y"], constants, opset=21), given


def _recurrent(dtype: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    given = {"x": _drawn(dtype, 5, 2, 4)}
    weights = {"w": _drawn(dtype, 1, 3, 4), "r": _drawn(dtype, 1, 3, 3)}
    nodes = [node("RNN", ["x", "w", "r"], ["y", "h"], hidden_size=3)]
    return model_of(nodes, given, ["y", "h"], weights), given


def _cut_in_the_middle(dtype: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    given = {"x": _drawn(dtype, 20, 8, 3)}
    shape: dict[str, Array] = {"shape": np.array([10, 10, 3])}
    return model_of([node("CenterCropPad", ["x", "shape"], ["y"])], given, ["y"], shape, 18), given


CASES: dict[str, tuple[Case, tuple[str, ...]]] = {
    "a local response norm": (_response, ("float16", "bfloat16")),
    "slopes of several axes": (_slopes, ("float16", "bfloat16")),
    "steps along an axis": (_steps, ("float16", "bfloat16")),
    "a recurrent layer whose functions onnxruntime wrote out": (_recurrent, ("float16",)),
    "shapes that follow from shapes": (_cut_in_the_middle, ("float16", "bfloat16")),
}


@pytest.mark.parametrize(
    ("case", "dtype"), [(case, dtype) for case in CASES for dtype in CASES[case][1]]
)
def test_is_as_in_float32(case: str, dtype: str) -> None:
    make = CASES[case][0]
    model, given = make(dtype)
    constants = {one.name: one for one in model.graph.initializer}
    wide, _ = make("float32")
    for tensor in wide.graph.initializer:
        # Drawn anew: the same numbers are wanted.
        if tensor.data_type == onnx.TensorProto.FLOAT:
            numbers = onnx.numpy_helper.to_array(constants[tensor.name]).astype("float32")
            tensor.CopyFrom(onnx.numpy_helper.from_array(numbers, tensor.name))
    wanted = by_onnxruntime(wide, {name: x.astype("float32") for name, x in given.items()})
    found = by_importer(model, given)
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert str(mine.dtype) == dtype and mine.shape == theirs.shape
        digits = 2.0**-7 if dtype == "bfloat16" else 2.0**-9
        np.testing.assert_allclose(mine.astype("float32"), theirs, rtol=digits, atol=digits / 4)
