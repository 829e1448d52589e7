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

from collage.backends.relax.static_shape import static_shape
from collage.normalize._base import TUPLE_ITEM, is_constant, is_tensor, op_name

Axes = tuple[int, ...]


class Order:
    """The orders that rules name."""

    CHANNELS_LAST: Axes = (0, 2, 3, 1)
    CHANNELS_FIRST: Axes = (0, 3, 1, 2)
    """The inverse: what brings a channels-last value back."""
    PLANE_SWAPPED: Axes = (0, 1, 3, 2)
    """The inner (N, 1, C, H * W) of a local response normalization with its channels last."""


def identity(rank: int) -> Axes:
    """A value's own order."""
    return tuple(range(rank))


class Orders(Protocol):
    """What rules may ask about operands of the old function."""

    def of(self, expr: relax.Expr) -> Axes:
        """An order in which the value exists, another than its own if there is one."""

    def get(self, expr: relax.Expr, axes: Axes) -> relax.Expr:
        """The value in this order."""


@dataclass(frozen=True)
class Answer:
    """New expressions for a binding, each with the order of axes that it has."""

    results: tuple[tuple[relax.Expr, Axes], ...]


def _one(expr: relax.Expr, order: Axes) -> Answer:
    return Answer(((expr, order),))


Rule = Callable[[Orders, relax.Expr], Answer | None]


def conv2d(orders: Orders, call: relax.Call) -> Answer | None:
    """NCHW with OIHW becomes NHWC with OHWI, whatever it costs."""
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    if layouts != ("NCHW", "OIHW") or str(attrs.out_layout) not in ("", "NCHW"):
        return None
    data, weights = call.args
    if not is_constant(weights) and not isinstance(weights, relax.Var):
        return None
    result = relax.op.nn.conv2d(
        orders.get(data, Order.CHANNELS_LAST),
        orders.get(weights, Order.CHANNELS_LAST),
        strides=list(attrs.strides),
        padding=list(attrs.padding),
        dilation=list(attrs.dilation),
        groups=int(attrs.groups),
        data_layout="NHWC",
        kernel_layout="OHWI",
        out_layout="NHWC",
        out_dtype=attrs.out_dtype or None,
    )
    return _one(result, Order.CHANNELS_LAST)


def pool2d(orders: Orders, call: relax.Call) -> Answer | None:
    """Pools follow their operand; across the channels of an LRN, with the axes exchanged."""
    attrs = call.attrs
    order = orders.of(call.args[0])
    if str(attrs.layout) != "NCHW" or str(attrs.out_layout) not in ("", "NCHW"):
        return None
    if order not in (Order.CHANNELS_LAST, Order.PLANE_SWAPPED):
        return None
    swapped = order == Order.PLANE_SWAPPED
    layout = "NCHW" if swapped else "NHWC"

    def pair(values: Sequence[int]) -> list[int]:
        listed = [int(v) for v in values]
        return [listed[i ^ 1] for i in range(len(listed))] if swapped else listed

    operator = getattr(relax.op.nn, op_name(call).removeprefix("nn."))
    result = operator(
        orders.get(call.args[0], order),
        pool_size=pair(attrs.pool_size),
        strides=pair(attrs.strides),
        padding=pair(attrs.padding),
        dilation=pair(attrs.dilation),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
        layout=layout,
        out_layout=layout,
    )
    return _one(result, order)


def adaptive_pool2d(orders: Orders, call: relax.Call) -> Answer | None:
    """Adaptive pools follow their operand."""
    attrs = call.attrs
    if str(attrs.layout) != "NCHW" or orders.of(call.args[0]) != Order.CHANNELS_LAST:
        return None
    result = relax.op.nn.adaptive_avg_pool2d(
        orders.get(call.args[0], Order.CHANNELS_LAST),
        output_size=None if attrs.output_size is None else list(attrs.output_size),
        layout="NHWC",
        out_layout="NHWC",
    )
    return _one(result, Order.CHANNELS_LAST)


def resize2d(orders: Orders, call: relax.Call) -> Answer | None:
    """Resizing follows its operand."""
    attrs = call.attrs
    if str(attrs.layout) != "NCHW" or orders.of(call.args[0]) != Order.CHANNELS_LAST:
        return None
    result = relax.op.image.resize2d(
        orders.get(call.args[0], Order.CHANNELS_LAST),
        call.args[1],
        roi=tuple(float(v) for v in attrs.roi),
        layout="NHWC",
        method=str(attrs.method),
        coordinate_transformation_mode=str(attrs.coordinate_transformation_mode),
        rounding_method=str(attrs.rounding_method),
        cubic_alpha=float(attrs.cubic_alpha),
        cubic_exclude=int(attrs.cubic_exclude),
        extrapolation_value=float(attrs.extrapolation_value),
        out_dtype=attrs.out_dtype or None,
    )
    return _one(result, Order.CHANNELS_LAST)


def elementwise(orders: Orders, call: relax.Call) -> Answer | None:
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


def reduction(orders: Orders, call: relax.Call) -> Answer | None:
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
    operator = getattr(relax.op, op_name(call))
    places = sorted(order.index(axis) for axis in axes)
    result = operator(orders.get(x, order), axis=places, keepdims=keepdims)
    return _one(result, order if keepdims else identity(len(left)))


def softmax(orders: Orders, call: relax.Call) -> Answer | None:
    """Along one axis, wherever it stands."""
    x = call.args[0]
    order = orders.of(x)
    if order == identity(len(order)):
        return None
    axis = order.index(int(call.attrs.axis) % len(order))
    operator = getattr(relax.op.nn, op_name(call).removeprefix("nn."))
    return _one(operator(orders.get(x, order), axis=axis), order)


def concat(orders: Orders, call: relax.Call) -> Answer | None:
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


def split(orders: Orders, call: relax.Call) -> Answer | None:
    """Along one axis, wherever it stands; the parts then have the operand's order."""
    x = call.args[0]
    order = orders.of(x)
    if order == identity(len(order)):
        return None
    sections = call.attrs.indices_or_sections
    parts = [int(v) for v in sections] if hasattr(sections, "__len__") else int(sections)
    axis = order.index(int(call.attrs.axis) % len(order))
    return _one(relax.op.split(orders.get(x, order), parts, axis=axis), order)


def tuple_item(orders: Orders, item: relax.TupleGetItem) -> Answer | None:
    """One of several results has the order that all of them have."""
    order = orders.of(item.tuple_value)
    if not order:
        return None
    return _one(relax.TupleGetItem(orders.get(item.tuple_value, order), item.index), order)


def strided_slice(orders: Orders, call: relax.Call) -> Answer | None:
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


def pad(orders: Orders, call: relax.Call) -> Answer | None:
    """Pads of each axis move with it."""
    x = call.args[0]
    order = orders.of(x)
    if order == identity(len(order)):
        return None
    width = [int(p) for p in call.attrs.pad_width]
    moved = [width[2 * axis + side] for axis in order for side in (0, 1)]
    value, mode = float(call.attrs.pad_value), str(call.attrs.pad_mode)
    return _one(relax.op.nn.pad(orders.get(x, order), moved, mode, value), order)


def permute_dims(orders: Orders, call: relax.Call) -> Answer | None:
    """A permutation of a value in another order is that value in yet another one: nothing to do.

    One that brings channels first is not written either, until something asks for it so.
    """
    x = call.args[0]
    rank = len(static_shape(x))
    axes = call.attrs.axes
    wanted = tuple(range(rank))[::-1] if axes is None else tuple(int(a) % rank for a in axes)
    order = orders.of(x)
    if order == identity(rank) and wanted != Order.CHANNELS_FIRST:
        return None
    result = tuple(wanted.index(axis) for axis in order)
    return _one(orders.get(x, order), result)


def reshape(orders: Orders, call: relax.Call) -> Answer | None:
    """Reshapes that regroup channels among themselves and places among themselves."""
    x = call.args[0]
    if not is_tensor(x) or not is_tensor(call):
        return None
    old, new, order = static_shape(x), static_shape(call), orders.of(x)
    if order == identity(len(old)) or len(old) < 3 or not new or new[0] != old[0]:
        return None
    if order == Order.PLANE_SWAPPED:
        return _from_plane(orders, x, old, new)
    if order == Order.CHANNELS_LAST and len(new) == 4 and new[1] == 1 < old[1]:
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
    return None


def _to_plane(orders: Orders, x: relax.Expr, old: Axes, new: Axes) -> Answer | None:
    """(N, C, H, W) to (N, 1, C, H * W), as LRN wants it."""
    if new != (old[0], 1, old[1], old[2] * old[3]):
        return None
    last = orders.get(x, Order.CHANNELS_LAST)
    result = relax.op.reshape(last, relax.ShapeExpr((new[0], 1, new[3], new[2])))
    return _one(result, Order.PLANE_SWAPPED)


def _from_plane(orders: Orders, x: relax.Expr, old: Axes, new: Axes) -> Answer | None:
    """(N, 1, C, H * W) back to (N, C, H, W)."""
    if len(new) != 4 or old[1] != 1 or new[1] != old[2] or new[2] * new[3] != old[3]:
        return None
    plane = orders.get(x, Order.PLANE_SWAPPED)
    result = relax.op.reshape(plane, relax.ShapeExpr((new[0], new[2], new[3], new[1])))
    return _one(result, Order.CHANNELS_LAST)


_ELEMENTWISE = (
    *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "floor_divide"),
    *("mod", "floor_mod", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "where", "clip", "astype"),
    *("abs", "ceil", "cos", "erf", "exp", "floor", "log", "negative", "round", "rsqrt", "sigmoid"),
    *("sign", "sin", "sqrt", "square", "tan", "tanh", "nn.relu", "nn.relu6", "nn.gelu"),
    *("nn.gelu_tanh", "nn.silu", "nn.selu", "nn.leakyrelu", "nn.softplus", "isnan", "isinf"),
)

RULES: Mapping[str, Rule] = {
    "nn.conv2d": conv2d,
    "nn.max_pool2d": pool2d,
    "nn.avg_pool2d": pool2d,
    "nn.adaptive_avg_pool2d": adaptive_pool2d,
    "image.resize2d": resize2d,
    "concat": concat,
    "split": split,
    TUPLE_ITEM: tuple_item,
    "strided_slice": strided_slice,
    "nn.pad": pad,
    "permute_dims": permute_dims,
    "reshape": reshape,
    **dict.fromkeys(("sum", "mean", "max", "min", "variance", "std"), reduction),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax"), softmax),
    **dict.fromkeys(_ELEMENTWISE, elementwise),
}
