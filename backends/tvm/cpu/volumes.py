"""Convolutions of volumes as those of their slices.

A slice of the result takes as many slices of the data as the kernel is deep. With these as channels
of one picture, each slice is what the packed kernel of pictures takes; TVM's own keeps nothing in
registers, and takes four to six times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import GenericConst

from collage.backends.tvm.common.blocks import int64
from collage.backends.tvm.common.legalization import OUT_FUSABLE, default_legalization
from collage.backends.tvm.cpu.extents import convolution_extents
from collage.backends.tvm.cpu.schedules import Machine, conv2d, conv_plan


@dataclass(frozen=True)
class _Depth:
    """What is the kernel's along the first axis of volumes."""

    extent: int
    kernel: int
    stride: int
    before: int
    dilation: int
    result: int


def legalize_conv3d(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """Slice by slice, in float32 of constant weights; TVM's own for all else.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Gets the kernel.
    call : relax.Call
        Of ``nn.conv3d``.
    machine : Machine
        What the kernel is laid out for.

    Returns
    -------
    relax.Expr
        The convolution's result.
    """
    found = _figures(call)
    if found is None:
        return default_legalization(builder, call)
    depth, shape = found
    data, weights = call.args
    cut = conv_plan.plan(shape, machine)
    array = weights.value.numpy()
    # The taps of a channel one behind the other, as they lie in memory.
    taps = array.reshape(shape.out_channels, shape.group_channels, *shape.kernel)
    packed = relax.const(conv2d.pack_weights(taps, shape, cut.tile))

    def product(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        slices = conv2d.compute(_slices(x, depth, shape), w, shape, cut)
        return te.compute(
            int64(
                shape.batch // depth.result,
                shape.out_channels,
                depth.result,
                shape.out_height,
                shape.out_width,
            ),
            lambda n, o, d, h, w: slices[n * depth.result + d, o, h, w],
            name=conv2d.VOLUME,
        )

    return builder.call_te(
        product, data, packed, primfunc_name_hint="conv3d", primfunc_attrs=OUT_FUSABLE
    )


def _slices(data: te.Tensor, depth: _Depth, shape: conv_plan.ConvShape) -> te.Tensor:
    """Pictures, as many for each sample as its result has slices."""

    def element(n: Any, c: Any, h: Any, w: Any) -> Any:
        tap = c % depth.kernel * depth.dilation
        at = n % depth.result * depth.stride + tap - depth.before
        value = data[n // depth.result, c // depth.kernel, at, h, w]
        inside = tirx.all(at >= 0, at < depth.extent)
        return tirx.if_then_else(inside, value, tirx.const(0, data.dtype))

    return te.compute(
        int64(shape.batch, shape.channels, shape.height, shape.width), element, name=conv2d.SLICES
    )


def _figures(call: relax.Call) -> tuple[_Depth, conv_plan.ConvShape] | None:
    """Of a convolution that is taken; the shape is that of its slices."""
    attrs, extents = call.attrs, convolution_extents(call, "DHW")
    if extents is None or not isinstance(call.args[1], GenericConst):
        return None
    dims, kernel, result = extents
    groups = int(attrs.groups)
    # Of a depthwise one the packed kernel has nothing to keep.
    if groups > 1 and kernel[1] == 1:
        return None
    front, top, left, _, bottom, right = (int(v) for v in attrs.padding)
    strides = [int(v) for v in attrs.strides]
    dilation = [int(v) for v in attrs.dilation]
    depth = _Depth(dims[2], kernel[2], strides[0], front, dilation[0], result[2])
    shape = conv_plan.ConvShape(
        batch=dims[0] * result[2],
        channels=dims[1] * kernel[2],
        height=dims[3],
        width=dims[4],
        out_channels=kernel[0],
        kernel=(kernel[3], kernel[4]),
        strides=(strides[1], strides[2]),
        padding=(top, left, bottom, right),
        dilation=(dilation[1], dilation[2]),
        groups=groups,
    )
    return depth, shape
