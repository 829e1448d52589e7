"""Operators that are a graph by themselves: pools, softmax and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cudnn.graphs.epilogue import same_dtype
from collage.backends.cudnn.graphs.spatial import per_axis, plane_view
from collage.backends.cudnn.problem import Graph, GraphBuilder, Kind
from collage.backends.relax.calls.pooling import SPATIAL, PoolPadding
from collage.backends.relax.calls.strided_views import View
from collage.backends.relax.static_shape import static_shape


def pool_graph(call: relax.Call) -> Graph:
    """A ``max_pool`` or ``avg_pool`` of any rank. Slots: data, result.

    Raises
    ------
    UnsupportedProblemError
        When cuDNN's resampling cannot run it.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((1, 8, 6, 6), "float16"))
    >>> call = relax.BlockBuilder().normalize(relax.op.nn.max_pool2d(x, (2, 2), (2, 2)))
    >>> pool_graph(call).name
    'max_pool float16 1x8x6x6 1x8x3x3'
    """
    attrs = call.attrs
    space = SPATIAL[len(attrs.pool_size)]
    layout, out_layout = str(attrs.layout), str(attrs.out_layout or attrs.layout)
    layouts = (f"N{space}C", f"NC{space}")
    if layout not in layouts or out_layout != layout:
        raise UnsupportedProblemError(
            f"layout {layout} to {out_layout}; only {' and '.join(layouts)}"
        )
    dtype = same_dtype(call.args[0], call)
    if dtype == "bfloat16":
        # Seen with 9.19 on an H200: large errors and NaN, where float16 and float32 are right.
        raise UnsupportedProblemError("cuDNN's pooling computes wrong results in bfloat16")
    x, y = (plane_view(static_shape(e, "a tensor"), layout, "NC") for e in (call.args[0], call))
    if any(int(step) != 1 for step in attrs.dilation):
        raise UnsupportedProblemError(f"dilation {list(attrs.dilation)} is not supported")
    window, strides = ([int(n) for n in steps] for steps in (attrs.pool_size, attrs.strides))
    given = PoolPadding.of(call)
    padding = [*given.before, *given.after]
    if any(width >= size for width, size in zip(padding, window * 2, strict=True)):
        raise UnsupportedProblemError(f"padding {padding} is as wide as the window {window}")
    if str(call.op.name).startswith("relax.nn.max_pool"):
        kind = Kind.MAX_POOL
    elif attrs.count_include_pad:
        kind = Kind.AVG_POOL_INCLUDE_PADDING
    else:
        kind = Kind.AVG_POOL_EXCLUDE_PADDING
    if given.exceeded and kind is Kind.AVG_POOL_INCLUDE_PADDING:
        raise UnsupportedProblemError(
            "a window reaches beyond the padding that its average includes"
        )
    if kind is Kind.AVG_POOL_INCLUDE_PADDING and _is_more(given.after, given.before):
        # Seen with 9.19 on an H100: off by a third, where padding before alone is right.
        raise UnsupportedProblemError("cuDNN averages wrongly over more padding after than before")
    # With ceil mode the last window may; what is there counts as little as padding does.
    after = [max(pair) for pair in zip(given.reached, given.after, strict=True)]
    builder = GraphBuilder(dtype)
    ints = per_axis((window, 1), (strides, 1), (given.before, 0), (after, 0))
    builder.apply(kind, (builder.input(x),), y, ints)
    return builder.finish()


def _is_more(after: Sequence[int], before: Sequence[int]) -> bool:
    return any(one > other for one, other in zip(after, before, strict=True))


def softmax_graph(call: relax.Call) -> Graph:
    """A ``softmax`` over the last axis. Slots: data, result.

    Raises
    ------
    UnsupportedProblemError
        When it is over another axis.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((1, 8, 6, 6), "float16"))
    >>> softmax_graph(relax.BlockBuilder().normalize(relax.op.nn.softmax(x))).name
    'softmax float16 1x1x48x6 1x1x48x6'
    """
    shape = static_shape(call, "the result")
    if not shape or int(call.attrs.axis) not in (-1, len(shape) - 1):
        raise UnsupportedProblemError(f"axis {int(call.attrs.axis)} of {shape} is not the last one")
    builder = GraphBuilder(same_dtype(call.args[0], call))
    view = View.dense((1, 1, math.prod(shape[:-1]), shape[-1]))
    builder.apply(Kind.SOFTMAX, (builder.input(view),), view)
    return builder.finish()


def norm_graph(call: relax.Call) -> Graph:
    """A ``layer_norm`` or ``rms_norm`` over the last axes. Slots: data, scale, [bias,] result.

    Raises
    ------
    UnsupportedProblemError
        When cuDNN cannot run it.

    Examples
    --------
    >>> x, w = (relax.Var("x", relax.TensorType(of, "float16")) for of in ((4, 8), (8,)))
    >>> norm_graph(relax.BlockBuilder().normalize(relax.op.nn.rms_norm(x, w, -1))).name
    'rms_norm float16 4x8x1x1 1x8x1x1 4x8x1x1'
    """
    shape = static_shape(call, "the result")
    axes = sorted(int(axis) % len(shape) for axis in call.attrs.axes)
    if axes != list(range(len(shape) - len(axes), len(shape))):
        raise UnsupportedProblemError(f"normalized axes {axes} of {shape} are not the last ones")
    is_layer_norm = str(call.op.name) == "relax.nn.layer_norm"
    if is_layer_norm and not (call.attrs.center and call.attrs.scale):
        raise UnsupportedProblemError("a layer norm without scale or bias is not supported")
    parameters = call.args[1:]
    width = math.prod(shape[axes[0] :])
    for parameter in parameters:
        if math.prod(static_shape(parameter, "a parameter")) != width:
            raise UnsupportedProblemError(
                f"a parameter of shape {static_shape(parameter, 'a parameter')} does not have "
                f"{width} values"
            )
    builder = GraphBuilder(same_dtype(*call.args, call))
    # Rows are cuDNN's batch, what is normalized its channels.
    view = View((math.prod(shape[: axes[0]]), width, 1, 1), (width, 1, width, width))
    affine = View((1, width, 1, 1), (width, 1, width, width))
    inputs = [builder.input(view), *(builder.input(affine) for _ in parameters)]
    kind = Kind.LAYER_NORM if is_layer_norm else Kind.RMS_NORM
    builder.apply(kind, inputs, view, floats=[float(call.attrs.epsilon)])
    return builder.finish()
