"""Transposed convolutions in any layout, summed in float32, with no term that is zero by itself.

TVM's own knows channels first alone, sums in the result's data type, and convolves data with zeros
between its elements: of its terms, one in the product of the strides counts. Here each value of the
result goes through those taps of the kernel alone that meet an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from collage.backends.relax.calls.pooling import SPATIAL
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.legalization import OUT_FUSABLE, default_legalization
from collage.backends.tvm.cuda.phases import legalize_phases

_WIDE = "float32"


def legalize_transposed_convolution(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A transposed convolution of one to three spatial axes as one tensor program.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a call of ``conv1d_transpose``, ``conv2d_transpose`` or
        ``conv3d_transpose``.

    Returns
    -------
    relax.Expr
        A call of the tensor program, which sums in float32; TVM's own for layouts that mix axes.
    """
    phases = legalize_phases(builder, call)
    if phases is not None:
        return phases
    attrs = call.attrs
    rank = len(attrs.strides)
    space, layout, kernel_layout = SPATIAL[rank], str(attrs.data_layout), str(attrs.kernel_layout)
    plain = sorted(layout) == sorted(f"NC{space}") and sorted(kernel_layout) == sorted(f"IO{space}")
    if not plain or str(attrs.out_layout or layout) != layout:
        return default_legalization(builder, call)
    extents = dict(zip(layout, static_shape(call.args[0]), strict=True))
    kernel = dict(zip(kernel_layout, static_shape(call.args[1]), strict=True))
    inputs = extents["C"] // int(attrs.groups)
    axes = [
        _Axis(extents[a], kernel[a], *(int(values[n]) for values in _along(attrs)))
        for n, a in enumerate(space)
    ]
    dtype = str(call.ty.dtype)

    def convolution(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        channel = te.reduce_axis((0, inputs), name="c")
        taps = [te.reduce_axis((0, axis.taps), name=f"r{n}") for n, axis in enumerate(axes)]

        def term(*index: Any) -> Any:
            at = dict(zip(layout, index, strict=True))
            given = at["C"] // kernel["O"] * inputs + channel
            meets = [axis.meet(at[a], r) for axis, a, r in zip(axes, space, taps, strict=True)]
            places = dict(zip(space, (meet.place for meet in meets), strict=True))
            inside = [guard for meet in meets for guard in meet.inside]
            value = x(*(({"N": at["N"], "C": given} | places)[a] for a in layout)).astype(_WIDE)
            which = {"I": given, "O": at["C"] % kernel["O"]}
            which |= dict(zip(space, (meet.tap for meet in meets), strict=True))
            product = value * w(*(which[a] for a in kernel_layout)).astype(_WIDE)
            zero = tirx.const(0, _WIDE)
            guarded = tirx.if_then_else(tirx.all(*inside), product, zero) if inside else product
            return te.sum(guarded, axis=[channel, *taps])

        sums = te.compute(static_shape(call), term, name="conv_transpose")
        if dtype == _WIDE:
            return sums
        return te.compute(sums.shape, lambda *i: sums(*i).astype(dtype), name="narrow")

    return builder.call_te(
        convolution,
        *call.args,
        primfunc_name_hint=f"conv{rank}d_transpose",
        primfunc_attrs=OUT_FUSABLE,
    )


def _along(attrs: Any) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    return attrs.strides, attrs.padding, attrs.dilation


@dataclass(frozen=True)
class _TapMatch:
    """Where a place of the result meets data: the tap, the data's place, and when it does."""

    tap: Any
    place: Any
    inside: list[Any]


@dataclass(frozen=True)
class _Axis:
    """A spatial axis: place ``p`` of the data and tap ``k`` add to ``p * stride + k * dilation``,
    counted from ``before`` places in front of the result."""

    extent: int
    kernel: int
    stride: int
    before: int
    dilation: int

    @property
    def phased(self) -> bool:
        """Whether the taps that meet data are a stride apart."""
        return self.dilation == 1

    @property
    def taps(self) -> int:
        """How many taps a place of the result goes through."""
        return -(-self.kernel // self.stride) if self.phased else self.kernel

    def meet(self, index: Any, r: Any) -> _TapMatch:
        """What place ``index`` of the result and the ``r``-th of its taps have to do."""
        full = index + self.before
        if self.phased:
            tap, place = full % self.stride + r * self.stride, full // self.stride - r
            inside = [tap < self.kernel] if self.kernel % self.stride else []
        else:
            tap, offset = r, full - r * self.dilation
            place = tirx.floordiv(offset, self.stride)
            inside = [tirx.floormod(offset, self.stride) == 0] if self.stride > 1 else []
        return _TapMatch(tap, place, [*inside, place >= 0, place < self.extent])
