"""How each operator runs on operands whose axes stand in another order.

A rule is shown a call of the old function and answers the new call with the order that its result
then has, or None: the operator wants its operands as they were. An order is a tuple as
``permute_dims`` takes it: ``(0, 2, 3, 1)`` says that axis 1 of the value, its channels, comes last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tvm import relax

from collage.backends.relax.pooling import SPATIAL
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import TUPLE_ITEM, is_constant, is_tensor, permutation, with_attrs

Axes = tuple[int, ...]


PLANE_SWAPPED: Axes = (0, 1, 3, 2)
"""The order of the inner (N, 1, C, H * W) of a local response normalization, channels last."""


def channels_last(rank: int) -> Axes:
    """The order of a value (N, C, ...) whose channels come last."""
    return (0, *range(2, rank), 1)


def channels_first(rank: int) -> Axes:
    """The inverse: what brings a channels-last value back."""
    return (0, rank - 1, *range(1, rank - 1))


def identity(rank: int) -> Axes:
    """A value's own order."""
    return tuple(range(rank))


class _Orders(Protocol):
    """What rules may ask about operands of the old function."""

    def of(self, expr: relax.Expr) -> Axes:
        """An order in which the value exists, another than its own if there is one."""

    def get(self, expr: relax.Expr, axes: Axes) -> relax.Expr:
        """The value in this order."""


@dataclass(frozen=True)
class _Answer:
    """New expressions for a binding, each with the order of axes that it has."""

    results: tuple[tuple[relax.Expr, Axes], ...]


def _one(expr: relax.Expr, order: Axes) -> _Answer:
    return _Answer(((expr, order),))


_Rule = Callable[[_Orders, relax.Expr], _Answer | None]


def _convolution(orders: _Orders, call: relax.Call) -> _Answer | None:
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
    operands = (orders.get(operand, order) for operand in call.args)
    layouts = {"data_layout": f"N{space}C", "out_layout": f"N{space}C"}
    last = f"{kernel[0]}{space}{kernel[1]}"
    return _one(with_attrs(call, *operands, kernel_layout=last, **layouts), order)


def is_channels_first(call: relax.Call) -> bool:
    """Whether a convolution's data and result are (N, C, ...).

    Parameters
    ----------
    call : relax.Call
        Of one of :data:`CONVOLUTIONS`.
    """
    layout = f"NC{SPATIAL[len(call.attrs.strides)]}"
    return str(call.attrs.data_layout) == layout and str(call.attrs.out_layout) in ("", layout)


def _pool(orders: _Orders, call: relax.Call) -> _Answer | None:
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
    return _one(result, order)


def _resized(orders: _Orders, call: relax.Call) -> _Answer | None:
    """Adaptive pools and resizing follow their operand."""
    x, *size = call.args
    order = orders.of(x)
    space = SPATIAL.get(len(order) - 2, "")
    if str(call.attrs.layout) != f"NC{space}" or order != channels_last(len(order)):
        return None
    layouts = {name: f"N{space}C" for name in ("layout", "out_layout") if hasattr(call.attrs, name)}
    return _one(with_attrs(call, orders.get(x, order), *size, **layouts), order)


def _normalization(orders: _Orders, call: relax.Call) -> _Answer | None:
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
    return _one(result, order)


def _elementwise(orders: _Orders, call: relax.Call) -> _Answer | None:
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
        arg if not is_tensor(arg) or static_shape(arg) == () else orders.get(arg, order)
        for arg in call.args
    ]
    return _one(relax.Call(call.op, args, call.attrs, call.ty_args), order)


def _reduction(orders: _Orders, call: relax.Call) -> _Answer | None:
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
    return _one(result, order if keepdims else identity(len(left)))


def _along_axis(orders: _Orders, call: relax.Call) -> _Answer | None:
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
    return _one(with_attrs(call, orders.get(x, order), *others, axis=axis), order)


def _concat(orders: _Orders, call: relax.Call) -> _Answer | None:
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
    return _one(relax.op.concat([orders.get(part, order) for part in fields], axis=axis), order)


def _tuple_item(orders: _Orders, item: relax.TupleGetItem) -> _Answer | None:
    """One of several results has the order that all of them have."""
    order = orders.of(item.tuple_value)
    if not order:
        return None
    return _one(relax.TupleGetItem(orders.get(item.tuple_value, order), item.index), order)


def _strided_slice(orders: _Orders, call: relax.Call) -> _Answer | None:
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
    return _one(result, order)


def _pad(orders: _Orders, call: relax.Call) -> _Answer | None:
    """Pads of each axis move with it."""
    x = call.args[0]
    order = orders.of(x)
    if order == identity(len(order)):
        return None
    width = [int(p) for p in call.attrs.pad_width]
    moved = [width[2 * axis + side] for axis in order for side in (0, 1)]
    return _one(with_attrs(call, orders.get(x, order), pad_width=moved), order)


def _permute_dims(orders: _Orders, call: relax.Call) -> _Answer | None:
    """A permutation of a value in another order is that value in yet another one: nothing to do.

    One that brings an image's channels first is not written either, until something asks for it
    so. Of three axes nobody knows whether they are that.
    """
    x = call.args[0]
    wanted, order = permutation(call), orders.of(x)
    lazy = len(wanted) > 3 and wanted == channels_first(len(wanted))
    if order == identity(len(wanted)) and not lazy:
        return None
    result = tuple(wanted.index(axis) for axis in order)
    return _one(orders.get(x, order), result)


def _reshape(orders: _Orders, call: relax.Call) -> _Answer | None:
    """Reshapes that regroup channels among themselves and places among themselves."""
    x = call.args[0]
    if not is_tensor(x) or not is_tensor(call):
        return None
    old, new, order = static_shape(x), static_shape(call), orders.of(x)
    if order == identity(len(old)) or len(old) < 3 or not new or new[0] != old[0]:
        return None
    if order == PLANE_SWAPPED:
        return _from_plane(orders, x, old, new)
    if order == channels_last(4) and len(new) == 4 and new[1] == 1 < old[1]:
        return _to_plane(orders, x, old, new)
    start = order[1]
    if start < 2:
        return None
    channels, places = math.prod(old[1:start]), math.prod(old[start:])
    grouped = (0, *range(start, len(old)), *range(1, start))
    if channels == 1 or places == 1:
        return _one(relax.op.reshape(orders.get(x, grouped), relax.ShapeExpr(new)), ())
    for cut in range(2, len(new)):
        if math.prod(new[1:cut]) == channels and math.prod(new[cut:]) == places:
            shape = (new[0], *new[cut:], *new[1:cut])
            result = relax.op.reshape(orders.get(x, grouped), relax.ShapeExpr(shape))
            return _one(result, (0, *range(cut, len(new)), *range(1, cut)))
    return _blocks_to_image(orders, x, old, new)


def _blocks_to_image(orders: _Orders, x: relax.Expr, old: Axes, new: Axes) -> _Answer | None:
    """Blocks of pixels, which lie among channels until now, go to their places.

    The last step of moving depth to space: one permutation goes to channels last at once.
    """
    groups, at = [], 0
    for extent in new:
        first = at
        while at < len(old) and (first == at or math.prod(old[first:at]) < extent):
            at += 1
        groups.append(tuple(range(first, at)))
    merged = [math.prod(old[axis] for axis in group) for group in groups]
    if len(new) != 4 or len(old) == len(new) or at != len(old) or merged != list(new):
        return None
    last = channels_last(len(new))
    order = tuple(axis for group in last for axis in groups[group])
    shape = [new[axis] for axis in last]
    return _one(relax.op.reshape(orders.get(x, order), relax.ShapeExpr(shape)), last)


def _to_plane(orders: _Orders, x: relax.Expr, old: Axes, new: Axes) -> _Answer | None:
    """(N, C, H, W) to (N, 1, C, H * W), as LRN wants it."""
    if new != (old[0], 1, old[1], old[2] * old[3]):
        return None
    last = orders.get(x, channels_last(4))
    result = relax.op.reshape(last, relax.ShapeExpr((new[0], 1, new[3], new[2])))
    return _one(result, PLANE_SWAPPED)


def _from_plane(orders: _Orders, x: relax.Expr, old: Axes, new: Axes) -> _Answer | None:
    """(N, 1, C, H * W) back to (N, C, H, W)."""
    if len(new) != 4 or old[1] != 1 or new[1] != old[2] or new[2] * new[3] != old[3]:
        return None
    plane = orders.get(x, PLANE_SWAPPED)
    result = relax.op.reshape(plane, relax.ShapeExpr((new[0], new[2], new[3], new[1])))
    return _one(result, channels_last(4))


CONVOLUTIONS = tuple(f"nn.conv{rank}d{kind}" for rank in SPATIAL for kind in ("", "_transpose"))
"""Operators that this is all for."""

_ELEMENTWISE = (
    *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "floor_divide"),
    *("mod", "floor_mod", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "where", "clip", "astype"),
    *("abs", "ceil", "cos", "erf", "exp", "floor", "log", "negative", "round", "rsqrt", "sigmoid"),
    *("sign", "sin", "sqrt", "square", "tan", "tanh", "nn.relu", "nn.relu6", "nn.gelu"),
    *("nn.gelu_tanh", "nn.silu", "nn.selu", "nn.leakyrelu", "nn.softplus", "isnan", "isinf"),
)

RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **{f"nn.{kind}_pool{rank}d": _pool for kind in ("max", "avg") for rank in SPATIAL},
    **{f"nn.adaptive_avg_pool{rank}d": _resized for rank in SPATIAL},
    **dict.fromkeys(("image.resize2d", "image.resize3d"), _resized),
    **dict.fromkeys(("nn.group_norm", "nn.instance_norm"), _normalization),
    "concat": _concat,
    TUPLE_ITEM: _tuple_item,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
    "permute_dims": _permute_dims,
    "reshape": _reshape,
    **dict.fromkeys(("sum", "mean", "max", "min", "variance", "std"), _reduction),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "split"), _along_axis),
    **dict.fromkeys(("nn.prelu", "take", "cumsum", "flip", "repeat"), _along_axis),
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
}
