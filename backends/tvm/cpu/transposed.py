"""Transposed convolutions as ordinary ones, which have fast kernels, and an interleaving.

The places of the result that are a stride apart form a phase, and go through the same taps of the
kernel. So one convolution of stride one gives all phases, each as channels of its own. (Shi et al.,
Is the deconvolution layer the same as a convolutional layer?, 2016.) TVM's own convolves data with
zeros between its elements, one in the product of the strides of which counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from collage.backends.relax.calls.pooling import SPATIAL
from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.legalization import (
    OUT_FUSABLE,
    Legalization,
    default_legalization,
    reshaped,
)
from collage.backends.tvm.common.transposed_axis import TransposedAxis


def transposed_convolutions(convolution: Legalization) -> dict[str, Legalization]:
    """Legalizations of transposed convolutions, by operator name."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return _legalize(builder, call, convolution)

    return {f"relax.nn.conv{rank}d_transpose": legalize for rank in SPATIAL}


class _Axis(TransposedAxis):
    """With what its phases read."""

    @property
    def shift(self) -> int:
        """Places before the result's first one from which on phases count: all then read at the
        same places, through as few taps as there can be."""
        return self.padding % self.stride

    @property
    def offsets(self) -> range:
        """What a phase's ``i``-th place reads, as differences to ``i``."""
        last = self.padding // self.stride
        return range(last + 1 - -(-self.kernel // self.stride), last + 1)

    @property
    def places(self) -> int:
        """Of each phase; its first and last one may be beyond the result's ends."""
        return (self.result - 1 + self.shift) // self.stride + 1

    @property
    def zeros(self) -> tuple[int, int]:
        """Before and behind the data; a negative number drops elements."""
        return -self.offsets[0], self.places + self.offsets[-1] - self.extent

    def taps(self) -> NDArray[np.intp]:
        """The kernel's tap for each (phase, offset); ``kernel`` where there is none."""
        phases, offsets = np.arange(self.stride)[:, None], np.array(self.offsets)[None, :]
        taps = phases + self.padding - self.shift - offsets * self.stride
        return np.where((taps >= 0) & (taps < self.kernel), taps, self.kernel)


def _legalize(
    builder: relax.BlockBuilder, call: relax.Call, convolution: Legalization
) -> relax.Expr:
    """In float32, channels first, of constant weights; TVM's own for all else."""
    axes = _axes(call)
    if axes is None:
        return default_legalization(builder, call)
    data, weights = call.args
    batch, inputs, *extents = tensor_shape(data) or ()
    groups, rank = int(call.attrs.groups), len(axes)
    kernels = _kernels(weights.value.numpy(), axes, groups)
    zeros = [axis.zeros for axis in axes]
    if rank == 1:  # As an image of one row.
        kernels, zeros, extents = kernels[:, :, None], [(0, 0), *zeros], [1, *extents]
        data = builder.emit(reshaped(builder, data, [batch, inputs, *extents]))
    if any(width < 0 for pair in zeros for width in pair):
        data = _cut(builder, data, extents, zeros)
    before, behind = zip(*((max(0, b), max(0, e)) for b, e in zeros), strict=True)
    which = relax.op.nn.conv3d if rank == 3 else relax.op.nn.conv2d
    product = builder.normalize(
        which(data, relax.const(kernels), padding=(*before, *behind), groups=groups)
    )
    phases = builder.emit(convolution(builder, product))
    return builder.call_te(
        _interleaving(axes, tensor_shape(call) or ()),
        phases,
        primfunc_name_hint="phases",
        primfunc_attrs=OUT_FUSABLE,
    )


def _axes(call: relax.Call) -> list[_Axis] | None:
    """The spatial axes of what is taken."""
    attrs, (data, weights) = call.attrs, call.args
    rank = len(attrs.strides)
    space = SPATIAL[rank]
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout or ""))
    given, result = tensor_shape(data), tensor_shape(call)
    if layouts[:2] != (f"NC{space}", f"IO{space}") or layouts[2] not in ("", layouts[0]):
        return None
    if given is None or result is None or 0 in (*given, *result):
        return None
    if not isinstance(weights, GenericConst) or any(int(d) != 1 for d in attrs.dilation):
        return None
    if any(str(one.ty.dtype) != "float32" for one in (data, weights, call)):
        return None
    kernel = weights.value.shape[2:]
    rows = zip(given[2:], result[2:], kernel, attrs.strides, attrs.padding, strict=False)
    return [_Axis(*(int(value) for value in row)) for row in rows]


def _kernels(array: NDArray[Any], axes: Sequence[_Axis], groups: int) -> NDArray[Any]:
    """Each phase's kernel: (O with the phases behind each channel, I of a group, taps)."""
    inputs, width, *_ = array.shape
    each = inputs // groups
    # (groups, I, O, taps...) to (groups, O, phase and offset of each axis..., I).
    kernels = array.reshape(groups, each, width, *array.shape[2:])
    kernels = np.pad(kernels, [(0, 0)] * 3 + [(0, 1)] * len(axes))
    for n, axis in enumerate(axes):
        kernels = np.take(kernels, axis.taps(), axis=3 + 2 * n)
    phases = [3 + 2 * n for n in range(len(axes))]
    offsets = [4 + 2 * n for n in range(len(axes))]
    ordered = kernels.transpose([0, 2, *phases, 1, *offsets])
    outputs = groups * width * math.prod(axis.stride for axis in axes)
    taps = [len(axis.offsets) for axis in axes]
    return np.ascontiguousarray(ordered.reshape(outputs, each, *taps))


def _interleaving(axes: Sequence[_Axis], shape: Sequence[int]) -> Callable[[te.Tensor], te.Tensor]:
    def element_of(phases: te.Tensor) -> Callable[..., Any]:
        def element(n: Any, c: Any, *place: Any) -> Any:
            channel, at = c, []
            for axis, index in zip(axes, place, strict=True):
                shifted = index + axis.shift if axis.shift else index
                channel = channel * axis.stride + tirx.floormod(shifted, axis.stride)
                at.append(tirx.floordiv(shifted, axis.stride))
            row = [0] if len(axes) == 1 else []
            return phases(n, channel, *row, *at)

        return element

    return lambda phases: te.compute(list(shape), element_of(phases), name="interleaved")


def _cut(
    builder: relax.BlockBuilder,
    data: relax.Expr,
    extents: Sequence[int],
    zeros: Sequence[tuple[int, int]],
) -> relax.Expr:
    """The data without what no place of the result reads."""
    begin = [max(0, -before) for before, _ in zeros]
    end = [extent + min(0, behind) for extent, (_, behind) in zip(extents, zeros, strict=True)]
    axes = list(range(2, 2 + len(extents)))
    cut = builder.normalize(relax.op.strided_slice(data, axes, begin, end))
    return builder.emit(default_legalization(builder, cut))
