"""Convolutions: scales and shifts go into the weights and the bias, pads into the attributes."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.cost.reference.rounding import HALF
from collage.rewrite import (
    Rules,
    Scope,
    constant,
    dtype_of,
    op_name,
    operand_pair,
    with_attrs,
)

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_CHANNEL_FIRST = ("NCW", "NCHW", "NCDHW")
_OUTPUT_FIRST = ("OIW", "OIHW", "OIDHW")
_TRANSPOSED = ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
_INPUT_FIRST = ("IOW", "IOHW", "IODHW")
_MOST_SCALED = 64.0


def _channel_vector(scope: Scope, expr: relax.Expr, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant that varies along axis 1 alone, as one value per channel of ``shape``."""
    value = scope.digits.value(expr)
    if value is None or value.ndim > len(shape):
        return None
    value = value.reshape((1,) * (len(shape) - value.ndim) + value.shape)
    if any(size != 1 for axis, size in enumerate(value.shape) if axis != 1):
        return None
    if len(shape) < 2 or value.size not in (1, shape[1]):
        return None
    return np.broadcast_to(value.reshape(-1), (shape[1],))


def _convolution(scope: Scope, expr: relax.Expr) -> relax.Call | None:
    """The convolution behind ``expr``: constant weights, channels first, no other user."""
    call = scope.call(expr, *_CONVOLUTIONS, *_TRANSPOSED)
    if call is None or constant(call.args[1]) is None or not scope.only_use(expr):
        return None
    kernel = _INPUT_FIRST if op_name(call) in _TRANSPOSED else _OUTPUT_FIRST
    first = call.attrs.data_layout in _CHANNEL_FIRST and call.attrs.kernel_layout in kernel
    same = call.attrs.out_layout in ("", call.attrs.data_layout)
    return call if first and same else None


def _scaled(scope: Scope, convolution: relax.Call, scale: np.ndarray) -> np.ndarray:
    """The convolution's weights, those of each channel of its result times that one's scale."""
    weights = scope.digits.value(convolution.args[1])
    assert weights is not None
    if op_name(convolution) not in _TRANSPOSED:
        scaled: np.ndarray = weights * scale.reshape((-1,) + (1,) * (weights.ndim - 1))
        return scaled
    # Inputs come first, by groups; each has the channels of its group.
    groups = int(convolution.attrs.groups)
    split = weights.reshape(groups, -1, *weights.shape[1:])
    wide: np.ndarray = split * scale.reshape((groups, 1, -1) + (1,) * (weights.ndim - 2))
    return wide.reshape(weights.shape)


def _scale_into_weights(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``conv(x, W) * s`` is ``conv(x, s * W)``; a bias in between is scaled as well."""
    pair = operand_pair(call)
    if pair is None or static_shape(pair[0]) != static_shape(call):
        return None
    x = pair[0]
    scale = _channel_vector(scope, pair[1], static_shape(call))
    if scale is None:
        return None
    bias = scope.call(x, "add")
    shift = None
    if bias is not None and scope.only_use(x):
        shift = _channel_vector(scope, bias.args[1], static_shape(call))
        x = bias.args[0]
    convolution = _convolution(scope, x)
    if convolution is None or (bias is not None and shift is None):
        return None
    scale = scale.astype("float64")
    weights = _scaled(scope, convolution, scale)
    dtype = dtype_of(convolution.args[1])
    scaled = with_attrs(convolution, convolution.args[0], scope.digits.constant(weights, dtype))
    if shift is None:
        return scaled
    return relax.op.add(scope.emit(scaled), _bias(scope, shift * scale, call))


def _scaled_input_into_weights(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``conv(x, W) + (x * s + t)`` is one convolution: ``s`` goes to the taps in the middle.

    So networks look that were trained with a norm beside each convolution and are not yet folded.
    """
    shape = static_shape(call)
    for product, other in (call.args, call.args[::-1]):
        (y, bias), (z, shift) = (_without_bias(scope, e, shape) for e in (product, other))
        convolution, scaled = _convolution(scope, y), scope.call(z, "multiply")
        if convolution is None or scaled is None or not scope.only_use(z):
            continue
        x, scale = scaled.args[0], _channel_vector(scope, scaled.args[1], shape)
        middle = _middle(convolution)
        if scale is None or middle is None or not convolution.args[0].same_as(x):
            continue
        if static_shape(x) != shape or dtype_of(call) in HALF:
            continue
        weights = scope.digits.value(convolution.args[1])
        assert weights is not None
        wide = weights.astype("float64")
        channels = np.arange(shape[1])
        wide[(channels, channels % weights.shape[1], *middle)] += scale
        made = scope.digits.constant(wide, dtype_of(convolution.args[1]))
        total = scope.emit(with_attrs(convolution, x, made))
        return relax.op.add(total, _bias(scope, bias + shift, call))
    return None


def _without_bias(
    scope: Scope, expr: relax.Expr, shape: tuple[int, ...]
) -> tuple[relax.Expr, np.ndarray]:
    """What a constant for each channel is added to, and that constant; zeros where none is."""
    add = scope.call(expr, "add")
    if add is not None and scope.only_use(expr):
        value = _channel_vector(scope, add.args[1], shape)
        if value is not None:
            return add.args[0], value.astype("float64")
    return expr, np.zeros(shape[1] if len(shape) > 1 else 1)


def _middle(convolution: relax.Call) -> tuple[int, ...] | None:
    """Where the taps are that read the place of the result; None where none does."""
    attrs, (_, _, *taps) = convolution.attrs, static_shape(convolution.args[1])
    if op_name(convolution) in _TRANSPOSED or any(int(step) != 1 for step in attrs.strides):
        return None
    reach = [(size - 1) // 2 * int(d) for size, d in zip(taps, attrs.dilation, strict=True)]
    kept = [int(width) for width in attrs.padding] == 2 * reach and all(size % 2 for size in taps)
    return tuple(size // 2 for size in taps) if kept else None


def _scale_of_data(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``conv(x * s, W)`` is ``conv(x, s * W)`` for a number ``s``, in half precision.

    There a rounding less counts, and no weights are whole multiples of what bytes stand for.
    """
    scaled, weights = scope.call(call.args[0], "multiply"), scope.digits.value(call.args[1])
    pair = None if scaled is None else operand_pair(scaled)
    if pair is None or weights is None or dtype_of(call) not in HALF:
        return None
    number = scope.digits.value(pair[1])
    alone = scope.only_use(call.args[0]) and static_shape(pair[0]) == static_shape(call.args[0])
    if number is None or number.size != 1 or not alone:
        return None
    factor = float(number.reshape(()))
    # Weights are to stay normal numbers.
    if not 1 / _MOST_SCALED <= abs(factor) <= _MOST_SCALED:
        return None
    made = scope.digits.constant(weights * np.float64(factor), dtype_of(call.args[1]))
    return with_attrs(call, pair[0], made)


def _bias(scope: Scope, value: np.ndarray, like: relax.Call) -> relax.Expr:
    shape = (1, -1) + (1,) * (len(static_shape(like)) - 2)
    return scope.digits.constant(value.reshape(shape), dtype_of(like))


def _pad_into_convolution(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Zeros padded around the planes before a convolution become its own padding."""
    padding = spatial_padding(scope, call.args[0], 0.0)
    if padding is None or call.attrs.data_layout not in _CHANNEL_FIRST:
        return None
    x, added = padding
    total = [int(own) + more for own, more in zip(call.attrs.padding, added, strict=True)]
    return with_attrs(call, x, call.args[1], padding=total)


def spatial_padding(
    scope: Scope, expr: relax.Expr, fill: float
) -> tuple[relax.Expr, list[int]] | None:
    """What a pad of spatial axes pads, and with how much: (x, [before..., after...]).

    Parameters
    ----------
    scope : Scope
        Where the expression stands.
    expr : relax.Expr
        Channels first.
    fill : float
        The value that is padded with.

    Returns
    -------
    tuple or None
        None where ``expr`` is no such pad.
    """
    pad = scope.call(expr, "nn.pad")
    if pad is None or pad.attrs.pad_mode != "constant" or float(pad.attrs.pad_value) != fill:
        return None
    width = [int(p) for p in pad.attrs.pad_width]
    if any(width[:4]) or min(width) < 0:
        return None
    return pad.args[0], width[4::2] + width[5::2]


RULES: Rules = {
    "add": (_scaled_input_into_weights,),
    "multiply": (_scale_into_weights,),
    **dict.fromkeys(_CONVOLUTIONS, (_pad_into_convolution, _scale_of_data)),
    **dict.fromkeys(_TRANSPOSED, (_scale_of_data,)),
}
