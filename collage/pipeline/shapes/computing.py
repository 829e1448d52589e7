"""Operators that compute, each slice of their result from the same slice of their operands alone.

A rule is told on which axis each operand has the extent in question, and says on which the result
has it, or that slices are mixed. It need not look whether the result's shape is as it says: whoever
asks does that, and asks only where results for both extents are of one kind and rank.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from collage.backends.relax.kept_whole.search import NAME as SEARCHED
from collage.backends.relax.recurrent import NAME as RECURRENT
from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.static_shape import static_shape
from collage.backends.relax.trees import NAME as TREES
from collage.pipeline.shapes.operands import Axes, Operands, axes_of, has_extent


def _elementwise(call: Operands) -> int | None:
    place = call.aligned()
    return None if place is None else len(static_shape(call.large)) + place


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
    axis = call.past(call.large.attrs.axis)
    if axis is not None and bool(call.large.attrs.training):
        call.mixes()
    return (axis, None, None)


def _norm(call: Operands) -> int | None:
    attrs = call.large.attrs
    axis = call.past(attrs.axes)
    channels = getattr(attrs, "channel_axis", None)
    return axis if channels is None else call.along(axis, int(channels), len(call.shape()))


def _per_axis(call: Operands) -> int | None:
    return call.past(call.large.attrs.axis)


def _reduction(call: Operands) -> int | None:
    attrs = call.large.attrs
    axis = call.past(attrs.axis)
    if axis is None or bool(attrs.keepdims):
        return axis
    return axis - sum(taken < axis for taken in axes_of(attrs.axis, len(call.shape())))


def _attention(call: Operands) -> int | None:
    """Each element of the batch attends to itself alone."""
    if not any(map(has_extent, call.axes)):
        return None
    if call.axes[:3] != (0, 0, 0) or any(axis not in (0, None) for axis in call.axes[3:]):
        call.mixes()
    for index in range(3, len(call.axes)):
        if call.axes[index] is None and call.shape(index)[0] != 1:
            call.mixes()
    return 0


def _topk(call: Operands) -> Axes:
    axis = _per_axis(call)
    both = isinstance(call.large.ty, relax.TupleType)
    return (axis, axis) if both else axis


def _recurrent(call: Operands) -> Axes:
    """Each sequence of the batch goes by itself; its steps do not."""
    recurrence = Recurrence.of(call.large)
    places = recurrence.operands(call.axes)
    batch = {name: 0 if name == "lengths" else 1 for name in ("taken", "h0", "c0", "lengths")}
    if not any(map(has_extent, call.axes)):
        return (None,) * (1 + recurrence.states)
    if recurrence.stepped or any(place != batch.get(name) for name, place in places.items()):
        call.mixes()
    return (2, *(1,) * recurrence.states)


def _trees(call: Operands) -> int | None:
    """Each row walks by itself, down trees that are whole."""
    if any(map(has_extent, call.axes)) and call.axes != (0, *(None,) * (len(call.axes) - 1)):
        call.mixes()
    return call.axis(0)


def _searched(call: Operands) -> int | None:
    """Each value is looked for by itself, in a row for all or in one of its own."""
    rows, values = call.axis(0), call.axis(1)
    last = len(call.shape(1)) - 1
    for_all = len(call.shape(0)) == 1
    if rows is not None and (for_all or rows == last or rows != values):
        call.mixes()
    if rows is None and values not in (None, last) and not for_all:
        call.mixes()
    return values


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
    **dict.fromkeys(["nn.layer_norm", "nn.group_norm", "nn.instance_norm", "nn.rms_norm"], _norm),
    **dict.fromkeys(
        ["nn.softmax", "nn.log_softmax", "nn.prelu", "quantize", "dequantize"], _per_axis
    ),
    **dict.fromkeys(["cumsum", "cumprod", "flip", "sort", "argsort"], _per_axis),
    "nn.batch_norm": _batch_norm,
    "matmul": _matmul,
    **dict.fromkeys(["nn.attention", "nn.attention_bias"], _attention),
    "topk": _topk,
    RECURRENT: _recurrent,
    SEARCHED: _searched,
    TREES: _trees,
}
"""By operator's name, without ``relax.``."""
