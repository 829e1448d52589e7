"""Converters of convolutions and pooling: what TensorRT wants channels first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from collage.backends.relax.calls.layouts import data_layout, order, spatial_rank
from collage.backends.relax.calls.pooling import SPATIAL, PoolPadding, split_padding
from collage.backends.relax.static_shape import static_shape
from collage.backends.tensorrt.network.constants import TrtTensor
from collage.backends.tensorrt.problem import NetworkWriter, converts


class ChannelsFirst:
    """A tensor brought to (N, C, spatial...) with at least two spatial axes, and back.

    TensorRT removes the shuffles again where neighbours agree.

    Parameters
    ----------
    w : NetworkWriter
        Gets the shuffles.
    call : relax.Call
        Of an operator with spatial axes, whose layout and rank count.
    """

    def __init__(self, w: NetworkWriter, call: relax.Call) -> None:
        self.w = w
        self.rank = spatial_rank(call)
        self.layout = data_layout(call)
        self.plain = "NC" + SPATIAL[self.rank]
        self.out_shape = static_shape(call)

    def enter(self, expr: relax.Expr) -> TrtTensor:
        x = self.w.permute(self.w.tensor(expr), order(self.layout, self.plain))
        if self.rank == 1:
            x = self.w.reshape(x, (x.shape[0], x.shape[1], 1, x.shape[2]))
        return x

    def leave(self, y: TrtTensor) -> TrtTensor:
        if self.rank == 1:
            y = self.w.reshape(y, (y.shape[0], y.shape[1], y.shape[3]))
        return self.w.permute(y, order(self.plain, self.layout))

    def spatial(self, values: Sequence[int], neutral: int) -> list[int]:
        """Values per spatial axis, with a neutral one for the axis that one dimension lacks.

        Parameters
        ----------
        values : sequence of int
            One for each spatial axis of the operator.
        neutral : int
            For example 1 for a stride and 0 for padding.

        Returns
        -------
        list[int]
            Two values or more, as TensorRT's layers have no less than two spatial axes.
        """
        listed = [int(value) for value in values]
        return [neutral, *listed] if self.rank == 1 else listed

    def extents(self) -> list[int]:
        """Spatial extents of the result."""
        return [self.out_shape[self.layout.index(axis)] for axis in SPATIAL[self.rank]]


@converts("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _convolution(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    form, attrs = ChannelsFirst(w, call), call.attrs
    kernel = _Kernel(w, call, "OI" + SPATIAL[form.rank])
    before, after = split_padding(attrs.padding, form.rank)
    layer = w.network.add_convolution_nd(
        form.enter(call.args[0]), kernel.shape[0], kernel.shape[2:], kernel.weights
    )
    return _finish(form, kernel, call, layer, before, after)


@converts("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def _transposed_convolution(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    form, attrs = ChannelsFirst(w, call), call.attrs
    kernel = _Kernel(w, call, "IO" + SPATIAL[form.rank])
    before, after = split_padding(attrs.padding, form.rank)
    # What Relax adds to the output is what TensorRT takes less away from its end.
    ends = [have - int(m) for have, m in zip(after, attrs.output_padding, strict=True)]
    layer = w.network.add_deconvolution_nd(
        form.enter(call.args[0]),
        kernel.shape[1] * int(attrs.groups),
        kernel.shape[2:],
        kernel.weights,
    )
    return _finish(form, kernel, call, layer, before, ends)


def _finish(
    form: ChannelsFirst,
    kernel: _Kernel,
    call: relax.Call,
    layer: Any,
    before: Sequence[int],
    after: Sequence[int],
) -> TrtTensor:
    """The result of a convolution's layer, which gets what both directions have in common."""
    attrs = call.attrs
    result = form.w.output(
        layer,
        str(call.op.name).removeprefix("relax.nn."),
        stride_nd=form.spatial(attrs.strides, 1),
        dilation_nd=form.spatial(attrs.dilation, 1),
        pre_padding=form.spatial(before, 0),
        post_padding=form.spatial(after, 0),
        num_groups=int(attrs.groups),
    )
    kernel.attach(layer)
    return form.leave(result)


class _Kernel:
    """A convolution's weights in TensorRT's layout, two spatial axes at the least.

    Constants are handed over as such; weights that are dequantized in the region are a tensor, from
    which TensorRT makes an int8 kernel.
    """

    def __init__(self, w: NetworkWriter, call: relax.Call, layout: str) -> None:
        axes = order(str(call.attrs.kernel_layout), layout)
        array = w.array(call.args[1])
        self.tensor: TrtTensor | None = None
        if array is not None:
            array = array.transpose(axes)
            array = array[:, :, np.newaxis, :] if len(layout) == 3 else array
            self.shape = array.shape
            self.weights = w.weights(np.require(array, requirements="C"))
            return
        tensor = w.permute(w.tensor(call.args[1]), axes)
        outer, inner, *spatial = tuple(tensor.shape)
        self.shape = (outer, inner, *([1] if len(layout) == 3 else []), *spatial)
        self.tensor = w.reshape(tensor, self.shape)
        self.weights = w.trt.Weights(tensor.dtype)

    def attach(self, layer: Any) -> None:
        """Give the layer its weights where they are a tensor."""
        if self.tensor is not None:
            layer.set_input(1, self.tensor)


@converts(*(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)))
def _pool(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    form, attrs = ChannelsFirst(w, call), call.attrs
    average = ".avg_" in str(call.op.name)
    kind = w.trt.PoolingType.AVERAGE if average else w.trt.PoolingType.MAX
    padding = PoolPadding.of(call)
    layer = w.network.add_pooling_nd(
        form.enter(call.args[0]), kind, tuple(form.spatial(attrs.pool_size, 1))
    )
    result = w.output(
        layer,
        "pooling",
        stride_nd=form.spatial(attrs.strides, 1),
        pre_padding=form.spatial(padding.before, 0),
        post_padding=form.spatial([max(width, 0) for width in padding.reached], 0),
        average_count_excludes_padding=not bool(attrs.count_include_pad),
    )
    return form.leave(result)


@converts(*(f"nn.adaptive_avg_pool{rank}d" for rank in (1, 2, 3)))
def _adaptive_average(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    form = ChannelsFirst(w, call)
    x, out = form.enter(call.args[0]), form.spatial(form.extents(), 1)
    if all(extent == 1 for extent in out):
        axes = range(2, len(x.shape))
        return form.leave(w.cast_to(w.reduce("AVG", w.in_float32(x), axes, True), x.dtype))
    window = [given // wanted for given, wanted in zip(x.shape[2:], out, strict=True)]
    layer = w.network.add_pooling_nd(x, w.trt.PoolingType.AVERAGE, tuple(window))
    return form.leave(w.output(layer, "adaptive pooling", stride_nd=tuple(window)))
