"""Converters of convolutions, pooling and resizing: what OpenVINO wants channels first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from collage.backends.openvino.converters.bytes import scaled, weights_in_bytes
from collage.backends.openvino.model import OvTensor
from collage.backends.openvino.problem import RegionWriter, converts
from collage.backends.relax.calls.layouts import data_layout, order, spatial_rank
from collage.backends.relax.calls.pooling import SPATIAL, PoolPadding, split_padding
from collage.backends.relax.partitions.channels_first import ChannelsFirst
from collage.backends.relax.static_shape import static_shape


@converts(*(f"nn.conv{rank}d" for rank in (1, 2, 3)))
def _convolution(w: RegionWriter, call: relax.Call) -> OvTensor:
    return _convolve(w, call, "OI", w.op.convolution, w.op.group_convolution)


@converts(*(f"nn.conv{rank}d_transpose" for rank in (1, 2, 3)))
def _transposed_convolution(w: RegionWriter, call: relax.Call) -> OvTensor:
    more = [int(width) for width in call.attrs.output_padding]
    single, grouped = w.op.convolution_backprop_data, w.op.group_convolution_backprop_data
    return _convolve(w, call, "IO", single, grouped, output_padding=more)


def _convolve(
    w: RegionWriter,
    call: relax.Call,
    channels: str,
    single: Callable[..., Any],
    grouped: Callable[..., Any],
    **more: Any,
) -> OvTensor:
    attrs, rank = call.attrs, spatial_rank(call)
    form = ChannelsFirst(w, str(attrs.data_layout))
    kernel = _kernel(w, call, order(str(attrs.kernel_layout), channels + SPATIAL[rank]))
    groups = int(attrs.groups)
    before, after = split_padding(attrs.padding, rank)
    made = (single if groups == 1 else grouped)(
        form.enter(call.args[0]),
        kernel,
        strides=[int(step) for step in attrs.strides],
        pads_begin=before,
        pads_end=after,
        dilations=[int(step) for step in attrs.dilation],
        **more,
    )
    return form.leave(made.output(0))


def _kernel(w: RegionWriter, call: relax.Call, axes: Sequence[int]) -> OvTensor:
    """Weights as OpenVINO wants them: channels first, the groups an axis of their own."""
    groups = int(call.attrs.groups)

    def shared_out(shape: Sequence[int]) -> tuple[int, ...]:
        # The groups share out the first axis, whichever channels it counts.
        first, *rest = shape
        return (groups, first // groups, *rest) if groups > 1 else tuple(shape)

    in_bytes = weights_in_bytes(w, call.args[1])
    if in_bytes is None:
        kernel = w.permute(w.tensor(call.args[1]), axes)
        return w.reshape(kernel, shared_out(w.shape(kernel)))
    # Nothing may stand between the scales and the product.
    whole, scales = in_bytes[0].transpose(axes), in_bytes[1].transpose(axes)
    return scaled(
        w, whole.reshape(shared_out(whole.shape)), scales.reshape(shared_out(scales.shape))
    )


@converts(*(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)))
def _pool(w: RegionWriter, call: relax.Call) -> OvTensor:
    attrs = call.attrs
    form = ChannelsFirst(w, data_layout(call))
    padding = PoolPadding.of(call)
    settings = {
        "strides": [int(step) for step in attrs.strides],
        "pads_begin": padding.before,
        # As far as windows reach, so that rounding adds none.
        "pads_end": [max(width, 0) for width in padding.reached],
        "kernel_shape": [int(size) for size in attrs.pool_size],
        # Without them OpenVINO 2026.4 is killed by its own averages.
        "dilations": [1] * len(attrs.pool_size),
    }
    x = form.enter(call.args[0])
    if ".avg_" in str(call.op.name):
        made = w.op.avg_pool(x, exclude_pad=not attrs.count_include_pad, **settings)
    else:
        made = w.op.max_pool(x, **settings)
    return form.leave(made.output(0))


@converts(*(f"nn.adaptive_{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)))
def _adaptive_pool(w: RegionWriter, call: relax.Call) -> OvTensor:
    layout, rank = data_layout(call), spatial_rank(call)
    form = ChannelsFirst(w, layout)
    x, shape = form.enter(call.args[0]), static_shape(call)
    out = [shape[layout.index(axis)] for axis in SPATIAL[rank]]
    kind = "mean" if ".adaptive_avg_" in str(call.op.name) else "max"
    if all(extent == 1 for extent in out):
        return form.leave(w.reduce(kind, x, range(2, 2 + rank), True))
    pool = w.op.adaptive_avg_pool if kind == "mean" else w.op.adaptive_max_pool
    return form.leave(pool(x, w.integers(out)).output(0))


@converts("nn.pixel_shuffle")
def _pixel_shuffle(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    return w.op.depth_to_space(x, "depth_first", int(call.attrs.upscale_factor)).output(0)


RESIZE_METHODS = {"nearest_neighbor": "nearest", "linear": "linear_onnx", "cubic": "cubic"}
RESIZE_COORDINATES = {
    mode: mode for mode in ("asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel")
}
RESIZE_ROUNDING = {
    mode: mode for mode in ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor")
}
"""Exactly what OpenVINO's ``Interpolate`` has; Relax's ``round`` rounds ties to even and has no
counterpart."""


@converts("image.resize2d")
def _resize2d(w: RegionWriter, call: relax.Call) -> OvTensor:
    attrs, layout, shape = call.attrs, str(call.attrs.layout), static_shape(call)
    form = ChannelsFirst(w, layout)
    rounding = RESIZE_ROUNDING.get(str(attrs.rounding_method), "floor")
    made = w.op.interpolate(
        form.enter(call.args[0]),
        w.integers([shape[layout.index(axis)] for axis in "HW"]),
        mode=RESIZE_METHODS[str(attrs.method)],
        shape_calculation_mode="sizes",
        pads_begin=[0] * 4,
        pads_end=[0] * 4,
        coordinate_transformation_mode=RESIZE_COORDINATES[
            str(attrs.coordinate_transformation_mode)
        ],
        nearest_mode=rounding,
        cube_coeff=float(attrs.cubic_alpha),
        axes=w.integers([2, 3]),
    )
    return form.leave(made.output(0))
