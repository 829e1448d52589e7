"""Converters of convolutions, pooling and resizing: what ONNX has channels first."""

from __future__ import annotations

from typing import Any

from tvm import relax

from collage.backends.onnxruntime.model import OrtTensor
from collage.backends.onnxruntime.problem import RegionWriter, converts
from collage.backends.relax.calls.layouts import data_layout, order, spatial_rank
from collage.backends.relax.calls.pooling import SPATIAL, PoolPadding
from collage.backends.relax.partitions.channels_first import ChannelsFirst
from collage.backends.relax.static_shape import static_shape


@converts(*(f"nn.conv{rank}d" for rank in (1, 2, 3)))
def _convolution(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return _convolve(w, call, "Conv", "OI")


@converts(*(f"nn.conv{rank}d_transpose" for rank in (1, 2, 3)))
def _transposed_convolution(w: RegionWriter, call: relax.Call) -> OrtTensor:
    more = [int(width) for width in call.attrs.output_padding]
    return _convolve(w, call, "ConvTranspose", "IO", output_padding=more)


def _convolve(
    w: RegionWriter, call: relax.Call, kind: str, channels: str, **more: Any
) -> OrtTensor:
    attrs, rank = call.attrs, spatial_rank(call)
    form = ChannelsFirst(w, str(attrs.data_layout))
    axes = order(str(attrs.kernel_layout), channels + SPATIAL[rank])
    constant = w.array(w.resolved(call.args[1]))
    # A constant is permuted here: onnxruntime would have to do it while it reads the model.
    kernel = (
        w.permute(w.tensor(call.args[1]), axes)
        if constant is None
        else w.constant(constant.transpose(axes))
    )
    made = w.node(
        kind,
        form.enter(call.args[0]),
        kernel,
        strides=[int(step) for step in attrs.strides],
        pads=[int(width) for width in attrs.padding],
        dilations=[int(step) for step in attrs.dilation],
        group=int(attrs.groups),
        **more,
    )
    return form.leave(made)


@converts(*(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)))
def _pool(w: RegionWriter, call: relax.Call) -> OrtTensor:
    attrs = call.attrs
    form = ChannelsFirst(w, data_layout(call))
    padding = PoolPadding.of(call)
    settings: dict[str, Any] = {
        "strides": [int(step) for step in attrs.strides],
        # As far as windows reach, so that rounding adds none.
        "pads": [*padding.before, *(max(width, 0) for width in padding.reached)],
        "kernel_shape": [int(size) for size in attrs.pool_size],
    }
    kind = "MaxPool"
    if ".avg_" in str(call.op.name):
        kind = "AveragePool"
        settings["count_include_pad"] = int(attrs.count_include_pad)
    return form.leave(w.node(kind, form.enter(call.args[0]), **settings))


@converts(*(f"nn.adaptive_avg_pool{rank}d" for rank in (1, 2, 3)))
def _adaptive_pool(w: RegionWriter, call: relax.Call) -> OrtTensor:
    layout = data_layout(call)
    form = ChannelsFirst(w, layout)
    x = form.enter(call.args[0])
    spatial = SPATIAL[spatial_rank(call)]
    out = [static_shape(call)[layout.index(axis)] for axis in spatial]
    if all(extent == 1 for extent in out):
        return form.leave(w.node("GlobalAveragePool", x))
    steps = [have // wanted for have, wanted in zip(w.shape(x)[2:], out, strict=True)]
    return form.leave(w.node("AveragePool", x, kernel_shape=steps, strides=steps))


@converts("nn.pixel_shuffle")
def _pixel_shuffle(w: RegionWriter, call: relax.Call) -> OrtTensor:
    size = int(call.attrs.upscale_factor)
    return w.node("DepthToSpace", w.tensor(call.args[0]), blocksize=size, mode="CRD")


RESIZE_METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}
RESIZE_COORDINATES = ("asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel")
RESIZE_ROUNDING = ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor")
"""Exactly what ONNX's ``Resize`` has; Relax's ``round`` rounds ties to even and has no
counterpart."""


@converts("image.resize2d")
def _resize2d(w: RegionWriter, call: relax.Call) -> OrtTensor:
    attrs, layout, shape = call.attrs, str(call.attrs.layout), static_shape(call)
    form = ChannelsFirst(w, layout)
    settings: dict[str, Any] = {
        "mode": RESIZE_METHODS[str(attrs.method)],
        "coordinate_transformation_mode": str(attrs.coordinate_transformation_mode),
        "cubic_coeff_a": float(attrs.cubic_alpha),
        "exclude_outside": int(attrs.cubic_exclude),
    }
    if settings["mode"] == "nearest":
        settings["nearest_mode"] = str(attrs.rounding_method)
    sizes = w.integers([shape[layout.index(axis)] for axis in "NCHW"])
    return form.leave(w.node("Resize", form.enter(call.args[0]), None, None, sizes, **settings))
