"""Operators that compute each slice of their result from the same slice of their operands alone.

A rule is told on which axis each operand has the extent in question, and says on which the result
has it, or that slices are mixed. It need not look whether the result's shape is as it says: whoever
asks does that, and asks only where results for both extents are of one kind and rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from tvm import relax

from collage.backends.contract.errors import CollageError
from collage.backends.relax.static_shape import static_shape

Axes = int | None | tuple["Axes", ...]
"""The axis that has the extent, or None; of a tuple, of each part."""


class UnprovenError(CollageError):
    """It is not known that padding an axis changes nothing."""


@dataclass(frozen=True)
class Operands:
    """A call for two extents, and what is known of its operands.

    Attributes
    ----------
    name : str
        The operator's.
    large, small : relax.Call
        The call for the larger extent, and for the smaller.
    axes : tuple
        Of each argument.
    extents : tuple of int
        The two.
    """

    name: str
    large: relax.Call
    small: relax.Call
    axes: tuple[Axes, ...]
    extents: tuple[int, int]

    def axis(self, index: int = 0) -> int | None:
        """That of one operand, a tensor."""
        found = self.axes[index]
        return self.mixes() if isinstance(found, tuple) else found

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """One operand's, for the larger extent."""
        return static_shape(self.large.args[index])

    def only(self, index: int = 0) -> int | None:
        """The axis of one operand; all the others must not have the extent at all."""
        if any(_has(axes) for place, axes in enumerate(self.axes) if place != index):
            self.mixes()
        return self.axis(index)

    def along(self, axis: int | None, taken: object, rank: int) -> int | None:
        """The axis, unless it is among those that an operator works along.

        Parameters
        ----------
        axis : int or None
            That in question.
        taken : int, sequence of int or None
            Those of the operator; None for all.
        rank : int
            Of the operand.
        """
        if axis is None:
            return None
        if axis in _axes(taken, rank):
            self.mixes()
        return axis

    def mixes(self) -> NoReturn:
        """Say that slices are mixed, or may be.

        Raises
        ------
        UnprovenError
        """
        raise UnprovenError(f"{self.name} mixes slices, or may: an operand is {self._where()}")

    def _where(self) -> str:
        shapes = [_text(arg) for arg in self.large.args]
        return ", ".join(shapes)


def _text(arg: relax.Expr) -> str:
    return str(arg.ty) if hasattr(arg, "ty") else str(arg)


def _has(axes: Axes) -> bool:
    return any(map(_has, axes)) if isinstance(axes, tuple) else axes is not None


def _axes(taken: object, rank: int) -> set[int]:
    if taken is None:
        return set(range(rank))
    values = [taken] if not hasattr(taken, "__iter__") else taken
    return {int(value) % rank for value in values}


def _elementwise(call: Operands) -> int | None:
    """Operands are aligned to the right; where one has the extent, another has it too, or 1."""
    places = set()
    for index, axis in enumerate(call.axes):
        if isinstance(axis, tuple):
            call.mixes()
        if axis is not None:
            places.add(axis - len(call.shape(index)))
    if not places:
        return None
    if len(places) > 1:
        call.mixes()
    (place,) = places
    for index, arg in enumerate(call.large.args):
        if call.axes[index] is None and isinstance(arg.ty, relax.TensorType):
            shape = call.shape(index)
            if -place <= len(shape) and shape[place] != 1:
                call.mixes()
    return len(static_shape(call.large)) + place


def _made(call: Operands) -> int | None:
    """Of one value everywhere: the shape alone tells."""
    if any(map(_has, call.axes)):
        call.mixes()
    return _differing(call)


def _like(call: Operands) -> int | None:
    return call.only(0)


def _differing(call: Operands) -> int | None:
    one, two = static_shape(call.large), static_shape(call.small)
    differing = [axis for axis in range(len(one)) if one[axis] != two[axis]]
    if len(differing) > 1:
        call.mixes()
    return differing[0] if differing else None


def _broadcast(call: Operands) -> int | None:
    shape, rank = call.shape(), len(static_shape(call.large))
    axis = call.axis()
    found = _differing(call)
    if axis is not None:
        return axis - len(shape) + rank
    if found is not None and found - rank + len(shape) >= 0 and shape[found - rank] != 1:
        call.mixes()
    return found


def _windows(call: Operands) -> int | None:
    """Convolutions, pooling, resizing: slices of the batch."""
    attrs = call.large.attrs
    layout = str(getattr(attrs, "data_layout", None) or attrs.layout)
    out_layout = str(getattr(attrs, "out_layout", "") or layout)
    axis = call.only()
    if axis is None:
        return None
    if layout.find("N") != axis:
        call.mixes()
    return out_layout.index("N")


def _matmul(call: Operands) -> int | None:
    rank = len(static_shape(call.large))
    one, two = call.axis(0), call.axis(1)
    shapes = call.shape(0), call.shape(1)
    if one is None and two is None:
        return None
    if min(map(len, shapes)) < 2:
        call.mixes()
    places = {
        axis - len(shape)
        for axis, shape in zip((one, two), shapes, strict=True)
        if axis is not None
    }
    (place, *more) = places
    if more:
        call.mixes()
    if place >= -2:
        # Rows of the first, columns of the second; the other two are summed over.
        alone = (one is None) != (two is None)
        if not alone or (place == -2) != (two is None):
            call.mixes()
        return rank + place
    for axis, shape in zip((one, two), shapes, strict=True):
        if axis is None and -place <= len(shape) and shape[place] != 1:
            call.mixes()
    return rank + place


def _batch_norm(call: Operands) -> Axes:
    axis = call.along(call.only(), call.large.attrs.axis, len(call.shape()))
    if axis is not None and bool(call.large.attrs.training):
        call.mixes()
    return (axis, None, None)


def _norm(call: Operands) -> int | None:
    attrs, rank = call.large.attrs, len(call.shape())
    axis = call.along(call.only(), attrs.axes, rank)
    channels = getattr(attrs, "channel_axis", None)
    return axis if channels is None else call.along(axis, int(channels), rank)


def _per_axis(call: Operands) -> int | None:
    return call.along(call.only(), int(call.large.attrs.axis), len(call.shape()))


def _scan(call: Operands) -> int | None:
    taken = call.large.attrs.axis
    return call.along(call.only(), None if taken is None else int(taken), len(call.shape()))


def _reduction(call: Operands) -> int | None:
    attrs, rank = call.large.attrs, len(call.shape())
    axis = call.along(call.only(), attrs.axis, rank)
    if axis is None or bool(attrs.keepdims):
        return axis
    return axis - sum(taken < axis for taken in _axes(attrs.axis, rank))


def _transpose(call: Operands) -> int | None:
    axis, rank = call.only(), len(call.shape())
    if axis is None:
        return None
    order = call.large.attrs.axes
    order = range(rank)[::-1] if order is None else [int(a) % rank for a in order]
    return list(order).index(axis)


def _reshape(call: Operands) -> int | None:
    """Memory stays as it is, so the axis has to stand where as many elements lie behind it."""
    axis = call.axis()
    if axis is None:
        return None
    behind = math.prod(call.shape()[axis + 1 :])
    large, small = static_shape(call.large), static_shape(call.small)
    fitting = [
        place
        for place in range(len(large))
        if (large[place], small[place]) == call.extents
        and math.prod(large[place + 1 :]) == math.prod(small[place + 1 :]) == behind
    ]
    return fitting[0] if len(fitting) == 1 else call.mixes()


def _concat(call: Operands) -> int | None:
    (fields,) = call.axes
    places = set(fields) if isinstance(fields, tuple) else {fields}
    (axis, *more) = places
    if more or isinstance(axis, tuple):
        call.mixes()
    return call.along(axis, int(call.large.attrs.axis or 0), len(static_shape(call.large)))


def _stack(call: Operands) -> int | None:
    (fields,) = call.axes
    places = set(fields) if isinstance(fields, tuple) else {fields}
    (axis, *more) = places
    if more or isinstance(axis, tuple):
        call.mixes()
    if axis is None:
        return None
    new = int(call.large.attrs.axis or 0) % len(static_shape(call.large))
    return axis + (new <= axis)


def _split(call: Operands) -> Axes:
    axis = call.along(call.only(), int(call.large.attrs.axis), len(call.shape()))
    return (axis,) * len(call.large.ty.fields)


def _strided_slice(call: Operands) -> int | None:
    taken = [int(value) for value in call.large.args[1].fields]
    return call.along(call.only(), taken, len(call.shape()))


def _take(call: Operands) -> int | None:
    """Rows of a table, by indices of which each slice has its own; or the other way round."""
    table, indices = call.axis(0), call.axis(1)
    if table is None and indices is None:
        return None
    rank, taken = len(call.shape(0)), call.large.attrs.axis
    if taken is None:
        return indices if table is None else call.mixes()
    place = int(taken) % rank
    if table is None:
        return place + indices if indices is not None else None
    if indices is not None or table == place:
        call.mixes()
    return table if table < place else table - 1 + len(call.shape(1))


def _pad(call: Operands) -> int | None:
    axis = call.only()
    if axis is not None:
        widths = [int(width) for width in call.large.attrs.pad_width]
        if any(widths[2 * axis : 2 * axis + 2]):
            call.mixes()
    return axis


def _attention(call: Operands) -> int | None:
    """Each element of the batch attends to itself alone."""
    if not any(map(_has, call.axes)):
        return None
    if call.axes[:3] != (0, 0, 0) or any(axis not in (0, None) for axis in call.axes[3:]):
        call.mixes()
    for index in range(3, len(call.axes)):
        if call.axes[index] is None and call.shape(index)[0] != 1:
            call.mixes()
    return 0


def _topk(call: Operands) -> Axes:
    axis = _scan(call)
    both = isinstance(call.large.ty, relax.TupleType)
    return (axis, axis) if both else axis


def _gather(call: Operands) -> int | None:
    """The same place in table and indices, but for the axis along which is gathered."""
    one, two = call.axis(0), call.axis(1)
    if one != two:
        call.mixes()
    return call.along(one, int(call.large.attrs.axis), len(call.shape()))


_ELEMENTWISE = """
    abs acos acosh asin asinh atan atanh bitwise_not ceil clip cos cosh erf exp floor isfinite isinf
    isnan log logical_not negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc
    astype nn.relu nn.relu6 nn.gelu nn.gelu_tanh nn.silu nn.selu nn.softplus nn.leakyrelu where
    add subtract multiply divide floor_divide mod floor_mod power maximum minimum atan2 log_add_exp
    equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor
    bitwise_and bitwise_or bitwise_xor left_shift right_shift
"""
_WINDOWS = """
    nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose
    nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d
    nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d image.resize2d
"""
_REDUCTIONS = "sum max min prod mean variance std argmax argmin"

RULES: dict[str, Callable[[Operands], Axes]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), _elementwise),
    **dict.fromkeys(_WINDOWS.split(), _windows),
    **dict.fromkeys(_REDUCTIONS.split(), _reduction),
    **dict.fromkeys(["full", "ones", "zeros"], _made),
    **dict.fromkeys(["full_like", "ones_like", "zeros_like"], _like),
    **dict.fromkeys(["nn.layer_norm", "nn.group_norm", "nn.instance_norm", "nn.rms_norm"], _norm),
    **dict.fromkeys(
        ["nn.softmax", "nn.log_softmax", "nn.prelu", "quantize", "dequantize"], _per_axis
    ),
    **dict.fromkeys(["cumsum", "cumprod", "flip", "sort", "argsort"], _scan),
    **dict.fromkeys(["reshape", "flatten", "nn.batch_flatten", "squeeze", "expand_dims"], _reshape),
    "nn.batch_norm": _batch_norm,
    "matmul": _matmul,
    "permute_dims": _transpose,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "take": _take,
    "broadcast_to": _broadcast,
    "nn.pad": _pad,
    "nn.attention": _attention,
    "topk": _topk,
    "gather_elements": _gather,
}
"""By operator's name, without ``relax.``."""
