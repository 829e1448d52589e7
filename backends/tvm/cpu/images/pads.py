"""Pads of images and signals whose ends are reflected, repeated or wrapped around."""

from __future__ import annotations

from tvm import relax, te, topi

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.cpu.schedules import pieces

_MODES = {
    "reflect": topi.nn.reflect_pad,
    "replicate": topi.nn.replicate_pad,
    "circular": topi.nn.circular_pad,
}


def legalize_pad(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A pad that reads its own tensor, in pieces; TVM's own with a constant, and along other axes.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a pad.

    Returns
    -------
    relax.Expr
        A call of the tensor program.
    """
    (data,) = call.args
    shape, mode = tensor_shape(data), str(call.attrs.pad_mode)
    widths = [int(width) for width in call.attrs.pad_width]
    if mode not in _MODES or not shape or 0 in shape or widths[-2:] == [0, 0]:
        return default_legalization(builder, call)
    lengths = [length for length in (widths[-2], shape[-1], widths[-1]) if length]

    def padded(x: te.Tensor) -> te.Tensor:
        return pieces.in_pieces(_MODES[mode](x, widths[::2], widths[1::2]), lengths)

    return builder.call_te(padded, data, primfunc_name_hint=f"{mode}_pad")
