"""How each operator runs on operands whose axes stand in another order.

A rule is shown a call of the old function and answers the new call with the order that its result
then has, or None: the operator wants its operands as they were. An order is a tuple as
``permute_dims`` takes it: ``(0, 2, 3, 1)`` says that axis 1 of the value, its channels, comes last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tvm import relax

from collage.backends.relax.calls.pooling import SPATIAL
from collage.backends.relax.static_shape import static_shape
from collage.passes.channels_last_orders import (
    PLANE_SWAPPED,
    Answer,
    Orders,
    Rule,
    channels_last,
    identity,
    one,
)
from collage.passes.channels_last_reshapes import permuted, reshaped
from collage.rewrite import (
    TUPLE_ITEM,
    constant,
    dtype_of,
    is_constant,
    is_tensor,
    make_constant,
    with_attrs,
)


def _convolution(orders: Orders, call: relax.Call) -> Answer | None:
    """NCHW with OIHW becomes NHWC with OHWI, whatever it costs; so do other ranks.

    Weights of transposed convolutions have their inputs where the others have outputs.
    """
    space, kernel = SPATIAL[len(call.attrs.strides)], str(call.attrs.kernel_layout)
    if not is_channels_first(call) or kernel not in (f"OI{space}", f"IO{space}"):
        return None
    weights = call.args[1]
    if not is_constant(weights) and not isinstance(weights, relax.Var):
        return None
    order = channels_last(len(space) + 2)
    if len(space) != 2 and _is_product(call):
        return one(_product(orders.get(call.args[0], order), call), order)
    operands = (orders.get(operand, order) for operand in call.args)
    layouts = {"data_layout": f"N{space}C", "out_layout": f"N{space}C"}
    last = f"{kernel[0]}{space}{kernel[1]}"
    return one(with_attrs(call, *operands, kernel_layout=last, **layouts), order)


def _is_product(call: relax.Call) -> bool:
    """Whether a convolution multiplies each place's channels by constant weights, and no more."""
    attrs = call.attrs
    whole = int(attrs.groups) == 1 and all(int(step) == 1 for step in attrs.strides)
    alone = math.prod(static_shape(call.args[1])[2:]) == 1 and not any(map(int, attrs.padding))
    return whole and alone and is_constant(call.args[1]) and str(attrs.kernel_layout)[0] == "O"


def _product(x: relax.Expr, call: relax.Call) -> relax.Expr:
    """A convolution of single places, of one or three spatial axes, as a product of matrices.

    Every library of products has these, with all that may follow; of two axes the convolution is
    known to all of them.
    """
    weights = constant(call.args[1])
    assert weights is not None
    columns = make_constant(weights.reshape(weights.shape[:2]).T, dtype_of(call.args[1]))
    return relax.op.matmul(x, columns, out_dtype=call.attrs.out_dtype or None)


def is_channels_first(call: relax.Call) -> bool:
    """Whether a convolution's data and result are (N, C, ...).

    Parameters
    ----------
    call : relax.Call
        Of one of :data:`CONVOLUTIONS`.
    """
    layout = f"NC{SPATIAL[len(call.attrs.strides)]}"
    return str(call.attrs.data_layout) == layout and str(call.attrs.out_layout) in ("", layout)


def _pool(orders: Orders, call: relax.Call) -> Answer | None:
    """Pools follow their operand; across the channels of an LRN, with the axes exchanged."""
    attrs = call.attrs
    order = orders.of(call.args[0])
    space = SPATIAL[len(attrs.pool_size)]
    first = f"NC{space}"
    if str(attrs.layout) != first or str(attrs.out_layout) not in ("", first):
        return None
    if order not in (channels_last(len(order)), PLANE_SWAPPED):
        return None
    swapped = order == PLANE_SWAPPED
    layout = first if swapped else f"N{space}C"

    def pair(values: Sequence[int]) -> list[int]:
        listed = [int(v) for v in values]
        return [listed[i ^ 1] for i in range(len(listed))] if swapped else listed

    window = {
        name: pair(getattr(attrs, name)) for name in ("pool_size", "strides", "padding", "dilation")
    }
    x = orders.get(call.args[0], order)
    result = with_attrs(call, x, **window, layout=layout, out_layout=layout)
    return one(result, order)


def _resized(orders: Orders, call: relax.Call) -> Answer | None:
    """Adaptive pools and resizing follow their operand."""
    x, *size = call.args
    order = orders.of(x)
    space = SPATIAL.get(len(order) - 2, "")
    if str(call.attrs.layout) != f"NC{space}" or order != channels_last(len(order)):
        return None
    layouts = {name: f"N{space}C" for name in ("layout", "out_layout") if hasattr(call.attrs, name)}
    return one(with_attrs(call, orders.get(x, order), *size, **layouts), order)


def _normalization(orders: Orders, call: relax.Call) -> Answer | None:
    """Group and instance norms name the axis of their channels, and those that they go over."""
    x = call.args[0]
    order = orders.of(x)
    rank = len(order)
    affine = [orders.get(arg, identity(len(static_shape(arg)))) for arg in call.args[1:]]
    if order == identity(rank):
        return None
    axes = sorted(order.index(int(axis) % rank) for axis in call.attrs.axes)
    channels = order.index(int(call.attrs.channel_axis) % rank)
    result = with_attrs(call, orders.get(x, order), *affine, axes=axes, channel_axis=channels)
    return one(result, order)


def _elementwise(orders: Orders, call: relax.Call) -> Answer | None:
    """Element by element, in the order that an operand of full rank already has."""
    rank = len(static_shape(call)) if is_tensor(call) else 0
    tensors = [arg for arg in call.args if is_tensor(arg)]
    full = [arg for arg in tensors if len(static_shape(arg)) == rank and not is_constant(arg)]
    order = next((o for o in map(orders.of, full) if o != identity(rank)), None)
    if order is None:
        return None
    if any(len(static_shape(a)) not in (0, rank) and not is_constant(a) for a in tensors):
        return None
    args = [
        orders.get(arg, order if static_shape(arg) else ()) if is_tensor(arg) else arg
        for arg in call.args
    ]
    return one(relax.Call(call.op, args, call.attrs, call.ty_args), order)


def _reduction(orders: Orders, call: relax.Call) -> Answer | None:
    """Reductions over named axes; what remains must stand in its own order, or keep its place."""
    x = call.args[0]
    rank = len(static_shape(x))
    order = orders.of(x)
    if order == identity(rank) or call.attrs.axis is None:
        return None
    axes = [int(a) % rank for a in call.attrs.axis]
    keepdims = bool(call.attrs.keepdims)
    left = [axis for axis in order if axis not in axes]
    if not keepdims and left != sorted(left):
        return None
    places = sorted(order.index(axis) for axis in axes)
    result = with_attrs(call, orders.get(x, order), axis=places)
    return one(result, order if keepdims else identity(len(left)))


def _along_axis(orders: Orders, call: relax.Call) -> Answer | None:
    """Along one axis, wherever it stands; the results have that order.

    What else a softmax or split, a PReLU or a gather takes has one axis at the most.
    """
    x = call.args[0]
    order = orders.of(x)
    others = call.args[1:]
    if order == identity(len(order)) or call.attrs.axis is None or not is_tensor(call.args[0]):
        return None
    if any(is_tensor(arg) and len(static_shape(arg)) != 1 for arg in others):
        return None
    axis = order.index(int(call.attrs.axis) % len(order))
    others = [orders.get(arg, identity(1)) if is_tensor(arg) else arg for arg in others]
    return one(with_attrs(call, orders.get(x, order), *others, axis=axis), order)


def _concat(orders: Orders, call: relax.Call) -> Answer | None:
    """Parts in the order that most of them have."""
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    if not fields or not all(is_tensor(part) for part in fields) or call.attrs.axis is None:
        return None
    rank = len(static_shape(fields[0]))
    found = [orders.of(part) for part in fields if not is_constant(part)]
    order = max(found, key=found.count, default=identity(rank))
    if order == identity(rank):
        return None
    axis = order.index(int(call.attrs.axis) % rank)
    return one(relax.op.concat([orders.get(part, order) for part in fields], axis=axis), order)


def _tuple_item(orders: Orders, item: relax.TupleGetItem) -> Answer | None:
    """One of several results has the order that all of them have."""
    order = orders.of(item.tuple_value)
    if not order:
        return None
    return one(relax.TupleGetItem(orders.get(item.tuple_value, order), item.index), order)


def _strided_slice(orders: Orders, call: relax.Call) -> Answer | None:
    """Slices along named axes."""
    x = call.args[0]
    order = orders.of(x)
    if order == identity(len(order)) or not isinstance(call.args[1], relax.Tuple):
        return None
    places = [order.index(int(axis) % len(order)) for axis in call.args[1].fields]
    bounds = [[int(v) for v in part.fields] for part in call.args[2:]]
    result = relax.op.strided_slice(
        orders.get(x, order), places, *bounds, assume_inbound=bool(call.attrs.assume_inbound)
    )
    return one(result, order)


def _pad(orders: Orders, call: relax.Call) -> Answer | None:
    """Pads of each axis move with it."""
    x = call.args[0]
    order = orders.of(x)
    if order == identity(len(order)):
        return None
    width = [int(p) for p in call.attrs.pad_width]
    moved = [width[2 * axis + side] for axis in order for side in (0, 1)]
    return one(with_attrs(call, orders.get(x, order), pad_width=moved), order)


CONVOLUTIONS = tuple(f"nn.conv{rank}d{kind}" for rank in SPATIAL for kind in ("", "_transpose"))
"""Operators that this is all for."""

_ELEMENTWISE = (
    *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "floor_divide"),
    *("mod", "floor_mod", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "where", "clip", "astype"),
    *("abs", "ceil", "cos", "erf", "exp", "floor", "log", "negative", "round", "rsqrt", "sigmoid"),
    *("sign", "sin", "sqrt", "square", "tan", "tanh", "nn.relu", "nn.relu6", "nn.gelu"),
    *("nn.gelu_tanh", "nn.silu", "nn.selu", "nn.leakyrelu", "nn.softplus", "isnan", "isinf"),
    *("isfinite", "trunc", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh"),
)

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **{f"nn.{kind}_pool{rank}d": _pool for kind in ("max", "avg") for rank in SPATIAL},
    **{f"nn.adaptive_avg_pool{rank}d": _resized for rank in SPATIAL},
    **dict.fromkeys(("image.resize2d", "image.resize3d"), _resized),
    **dict.fromkeys(("nn.group_norm", "nn.instance_norm"), _normalization),
    "concat": _concat,
    TUPLE_ITEM: _tuple_item,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
    "permute_dims": permuted,
    "reshape": reshaped,
    **dict.fromkeys(("sum", "mean", "max", "min", "variance", "std"), _reduction),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "split"), _along_axis),
    **dict.fromkeys(("nn.prelu", "take", "cumsum", "flip", "repeat"), _along_axis),
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
}
