"""TensorRT's layers that have an ONNX namesake, evaluated by onnxruntime.

TensorRT's own parser maps the one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

Array = NDArray[Any]
Layer = Any


def _onnx(op: str, given: Sequence[Array | None], **attributes: Any) -> Array:
    """One ONNX operator by onnxruntime, in float32."""
    names = ["" if array is None else f"i{place}" for place, array in enumerate(given)]
    feeds = {n: a for n, a in zip(names, given, strict=True) if a is not None}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    node = helper.make_node(op, names, ["y"], **attributes)
    model = helper.make_model(
        helper.make_graph([node], "one", infos, [output]),
        opset_imports=[helper.make_opsetid("", 19)],
        ir_version=9,
    )
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, feeds)
    return np.asarray(result, np.float64)


def _window(layer: Layer) -> dict[str, Any]:
    pads = [*list(layer.pre_padding), *list(layer.post_padding)]
    assert layer.padding_mode.name == "EXPLICIT_ROUND_DOWN"
    return {"pads": pads, "strides": list(layer.stride_nd)}


def convolution(layer: Layer, given: list[Array]) -> Array:
    """Also the transposed one."""
    x = given[0].astype(np.float32)
    size = list(layer.kernel_size_nd)
    kernel = given[1] if len(given) > 1 else layer.kernel
    weights = np.asarray(kernel, np.float32)
    transposed = type(layer).__name__ == "IDeconvolutionLayer"
    maps, groups = layer.num_output_maps, layer.num_groups
    shape = [x.shape[1], maps // groups] if transposed else [maps, x.shape[1] // groups]
    return _onnx(
        "ConvTranspose" if transposed else "Conv",
        [x, weights.reshape(shape + size)],
        group=groups,
        dilations=list(layer.dilation_nd),
        **_window(layer),
    )


def pooling(layer: Layer, given: list[Array]) -> Array:
    attributes = {"kernel_shape": list(layer.window_size_nd), **_window(layer)}
    if layer.type.name == "AVERAGE":
        include = int(not layer.average_count_excludes_padding)
        attributes["count_include_pad"] = include
    op = {"AVERAGE": "AveragePool", "MAX": "MaxPool"}[layer.type.name]
    return _onnx(op, [given[0].astype(np.float32)], **attributes)


def resize(layer: Layer, given: list[Array]) -> Array:
    upper = layer.selector_for_single_pixel.name == "UPPER"
    coordinates = layer.coordinate_transformation.name.lower()
    rounding = {
        "FLOOR": "floor",
        "CEIL": "ceil",
        "HALF_UP": "round_prefer_ceil",
        "HALF_DOWN": "round_prefer_floor",
    }
    attributes: dict[str, Any] = {
        "mode": layer.resize_mode.name.lower(),
        "coordinate_transformation_mode": "pytorch_half_pixel" if upper else coordinates,
    }
    if layer.resize_mode.name == "NEAREST":
        attributes["nearest_mode"] = rounding[layer.nearest_rounding.name]
    if layer.resize_mode.name == "CUBIC":
        attributes["cubic_coeff_a"] = layer.cubic_coeff
        attributes["exclude_outside"] = int(layer.exclude_outside)
    sizes = np.array(list(layer.shape), np.int64)
    return _onnx("Resize", [given[0].astype(np.float32), None, None, sizes], **attributes)
