"""Converters of operators that move elements and compute nothing."""

from __future__ import annotations

import math

from tvm import relax

from collage.backends.relax.calls.arguments import Slice
from collage.backends.relax.static_shape import static_shape
from collage.backends.tensorrt.network.constants import TrtTensor
from collage.backends.tensorrt.problem import NetworkWriter, converts


def sliced(
    w: NetworkWriter,
    x: TrtTensor,
    start: list[int],
    shape: tuple[int, ...],
    step: list[int] | None = None,
    mode: str = "STRICT_BOUNDS",
    fill: float = 0.0,
) -> TrtTensor:
    """A slice layer; ``mode`` says what lies outside of the tensor.

    Parameters
    ----------
    w : NetworkWriter
        Of the network.
    x : TrtTensor
        What is cut.
    start : list of int
        The first element, by axis; may be negative.
    shape : tuple of int
        Of the result.
    step : list of int, optional
        By axis; ones when it is not given.
    mode : str
        A ``SampleMode``: what lies outside of the tensor.
    fill : float
        With the mode ``FILL``, the value there.

    Returns
    -------
    TrtTensor
        Of that shape and the dtype of ``x``.

    Raises
    ------
    RefusalError
        When TensorRT makes no layer; has TensorRT's reason.
    """
    value = w.reshape(w.filled(fill, x), ()) if mode == "FILL" else None
    layer = w.network.add_slice(x, start, shape, step or [1] * len(shape))
    result = w.output(layer, "slice", mode=getattr(w.trt.SampleMode, mode))
    if value is not None:
        layer.set_input(4, value)
    return result


@converts("split")
def _split(w: NetworkWriter, call: relax.Call) -> list[TrtTensor]:
    x = w.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(x.shape)
    parts, begin = [], 0
    for ty in call.ty.fields:
        shape = static_shape(ty)
        start = [0] * len(shape)
        start[axis] = begin
        begin += shape[axis]
        parts.append(sliced(w, x, start, shape))
    return parts


@converts("strided_slice")
def _strided_slice(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    taken = Slice.of(call)
    return sliced(w, x, list(taken.start), static_shape(call), list(taken.step))


@converts("nn.pad")
def _pad(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    widths = [int(width) for width in call.attrs.pad_width]
    mode = PAD_MODES[str(call.attrs.pad_mode)]
    start = [-before for before in widths[::2]]
    value = float(call.attrs.pad_value)
    return sliced(w, w.tensor(call.args[0]), start, static_shape(call), mode=mode, fill=value)


PAD_MODES = {"constant": "FILL", "edge": "CLAMP", "reflect": "REFLECT"}
"""Relax's modes of padding and ``nvinfer1::SampleMode``."""


@converts("broadcast_to")
def _broadcast_to(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    shape = static_shape(call)
    x = w.with_rank(w.tensor(call.args[0]), len(shape))
    # A step of 0 reads the same element again.
    step = [int(extent != 1) for extent in x.shape]
    return sliced(w, x, [0] * len(shape), shape, step)


@converts("tile")
def _tile(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    shape = static_shape(call)
    x = w.with_rank(w.tensor(call.args[0]), len(shape))
    return sliced(w, x, [0] * len(shape), shape, mode="WRAP")


@converts("flip")
def _flip(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(x.shape)
    start, step = [0] * len(x.shape), [1] * len(x.shape)
    start[axis], step[axis] = x.shape[axis] - 1, -1
    return sliced(w, x, start, static_shape(call), step)


@converts("take")
def _take(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x, indices = w.tensor(call.args[0]), w.tensor(call.args[1])
    axis = call.attrs.axis
    if axis is None:
        x, axis = w.reshape(x, (math.prod(x.shape),)), 0
    axis = int(axis) % len(x.shape)
    if str(call.attrs.mode) == "clip":
        indices = w.binary("MAX", indices, w.filled(0, indices))
        indices = w.binary("MIN", indices, w.filled(x.shape[axis] - 1, indices))
    return w.output(w.network.add_gather(x, indices, axis), "take")


@converts("gather_elements", "gather_nd")
def _gather(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x, indices = w.tensor(call.args[0]), w.tensor(call.args[1])
    nd = str(call.op.name) == "relax.gather_nd"
    mode = w.trt.GatherMode.ND if nd else w.trt.GatherMode.ELEMENT
    layer = w.network.add_gather_v2(x, indices, mode)
    if nd:
        return w.output(layer, "gather", num_elementwise_dims=int(call.attrs.batch_dims))
    return w.output(layer, "gather", axis=int(call.attrs.axis) % len(x.shape))


@converts("image.resize2d")
def _resize2d(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    attrs, trt = call.attrs, w.trt
    x, shape = w.tensor(call.args[0]), static_shape(call)
    last = str(attrs.layout) == "NHWC"
    if last:
        x, shape = w.permute(x, (0, 3, 1, 2)), (shape[0], shape[3], shape[1], shape[2])
    method, mode = str(attrs.method), str(attrs.coordinate_transformation_mode)
    settings = {
        "shape": shape,
        "resize_mode": getattr(trt.InterpolationMode, RESIZE_METHODS[method]),
        "coordinate_transformation": getattr(
            trt.ResizeCoordinateTransformation, RESIZE_COORDINATES[mode]
        ),
    }
    if mode == "pytorch_half_pixel":
        settings["selector_for_single_pixel"] = trt.ResizeSelector.UPPER
    if method == "nearest_neighbor":
        rounding = RESIZE_ROUNDING[str(attrs.rounding_method)]
        settings["nearest_rounding"] = getattr(trt.ResizeRoundMode, rounding)
    if method == "cubic":
        settings["cubic_coeff"] = float(attrs.cubic_alpha)
        settings["exclude_outside"] = bool(attrs.cubic_exclude)
    result = w.output(w.network.add_resize(x), "resize2d", **settings)
    return w.permute(result, (0, 2, 3, 1)) if last else result


RESIZE_METHODS = {"nearest_neighbor": "NEAREST", "linear": "LINEAR", "cubic": "CUBIC"}
RESIZE_COORDINATES = {
    "asymmetric": "ASYMMETRIC",
    "align_corners": "ALIGN_CORNERS",
    "half_pixel": "HALF_PIXEL",
    "pytorch_half_pixel": "HALF_PIXEL",
}
RESIZE_ROUNDING = {
    "floor": "FLOOR",
    "ceil": "CEIL",
    "round_prefer_ceil": "HALF_UP",
    "round_prefer_floor": "HALF_DOWN",
}
"""Exactly what TensorRT's resize layer has; Relax's ``round`` rounds ties to even and has no
counterpart."""
