"""Importers of convolution, matmul, pooling, normalization and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from collage.backends.onednn.graph import OpKind, Pool, Reduction, Tensor
from collage.backends.onednn.partition import Importer, handles
from collage.backends.relax.calls.pooling import PoolPadding


@handles("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _convolution(imp: Importer, call: relax.Call) -> Tensor:
    x, weights = imp.tensor(call.args[0]), imp.tensor(call.args[1])
    attrs = call.attrs
    groups = int(attrs.groups)
    if groups > 1:
        out, rest = weights.shape[0], weights.shape[1:]
        weights = imp.graph.reshape(weights, (groups, out // groups, *rest))
    strides = [int(v) for v in attrs.strides]
    dilations = [int(v) - 1 for v in attrs.dilation]
    padding = [int(v) for v in attrs.padding]
    ints = [*strides, *dilations, *padding]
    return imp.graph.add(OpKind.CONV, [x, weights], imp.shape(call), ints)


@handles("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def _transposed_convolution(imp: Importer, call: relax.Call) -> Tensor:
    x, weights = imp.tensor(call.args[0]), imp.tensor(call.args[1])
    attrs, shape = call.attrs, imp.shape(call)
    groups, rank = int(attrs.groups), len(shape) - 2
    channels, *rest = weights.shape
    # oneDNN has a deconvolution's outputs first, as a convolution's.
    if groups > 1:
        weights = imp.graph.reshape(weights, (groups, channels // groups, *rest))
    outputs_first = [1, 0] if groups == 1 else [0, 2, 1]
    order = [*outputs_first, *range(len(outputs_first), len(weights.shape))]
    weights = imp.graph.permute(weights, order)
    strides = [int(v) for v in attrs.strides]
    dilations = [int(v) - 1 for v in attrs.dilation]
    before = [int(v) for v in attrs.padding][:rank]
    # What the result lacks of the whole; padding of the output makes that less.
    whole = [
        (extent - 1) * stride + (kernel - 1) * (dilation + 1) + 1
        for extent, stride, kernel, dilation in zip(
            x.shape[2:], strides, rest[1:], dilations, strict=True
        )
    ]
    after = [w - b - e for w, b, e in zip(whole, before, shape[2:], strict=True)]
    return imp.graph.add(
        OpKind.DECONV, [x, weights], shape, [*strides, *dilations, *before, *after]
    )


@handles("matmul")
def _matmul(imp: Importer, call: relax.Call) -> Tensor:
    a, b = imp.tensor(call.args[0]), imp.tensor(call.args[1])
    shape = imp.shape(call)
    if len(b.shape) > 2 or len(a.shape) < len(b.shape):
        rank = max(len(a.shape), len(b.shape))
        a = imp.graph.reshape(a, (1,) * (rank - len(a.shape)) + a.shape)
        b = imp.graph.reshape(b, (1,) * (rank - len(b.shape)) + b.shape)
    return imp.graph.add(OpKind.MATMUL, [a, b], shape, range(len(shape)))


@handles(*(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)))
def _pool(imp: Importer, call: relax.Call) -> Tensor:
    x, attrs = imp.tensor(call.args[0]), call.attrs
    if call.op.name.startswith("relax.nn.max"):
        algorithm = Pool.MAX
    elif attrs.count_include_pad:
        algorithm = Pool.AVERAGE_WITH_PADDING
    else:
        algorithm = Pool.AVERAGE
    shape = imp.shape(call)
    kernel = [int(v) for v in attrs.pool_size]
    strides = [int(v) for v in attrs.strides]
    dilation = [int(v) for v in attrs.dilation]
    padding = PoolPadding.of(call)
    ends = [*padding.before, *padding.reached]
    ints = [algorithm, *kernel, *strides, *(d - 1 for d in dilation), *ends]
    return imp.graph.add(OpKind.POOL, [x], shape, ints)


@handles("image.resize2d")
def _resize2d(imp: Importer, call: relax.Call) -> Tensor:
    x, shape = imp.tensor(call.args[0]), imp.shape(call)
    linear = str(call.attrs.method) == "linear"
    return imp.graph.add(OpKind.RESAMPLE, [x], shape, [linear])


def _tiled_average(imp: Importer, x: Tensor, window: Sequence[int]) -> Tensor:
    """Mean over windows that tile the image."""
    sizes = (extent // size for extent, size in zip(x.shape[2:], window, strict=True))
    ints = [Pool.AVERAGE, *window, *window, *[0] * (3 * len(window))]
    return imp.graph.add(OpKind.POOL, [x], (*x.shape[:2], *sizes), ints)


@handles("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d")
def _adaptive_avg_pool(imp: Importer, call: relax.Call) -> Tensor:
    x, shape = imp.tensor(call.args[0]), imp.shape(call)
    pairs = list(zip(x.shape[2:], shape[2:], strict=True))
    if any(given % wanted for given, wanted in pairs):
        raise imp.error(f"adaptive pooling of {x.shape[2:]} to {shape[2:]} has uneven windows")
    return _tiled_average(imp, x, [given // wanted for given, wanted in pairs])


@handles("mean", "sum", "max", "min")
def _reduction(imp: Importer, call: relax.Call) -> Tensor:
    x = imp.tensor(call.args[0])
    rank = len(x.shape)
    axes = range(rank) if call.attrs.axis is None else [int(a) % rank for a in call.attrs.axis]
    kept = tuple(1 if i in axes else extent for i, extent in enumerate(x.shape))
    name = str(call.op.name).removeprefix("relax.")
    if name == "mean" and 3 < rank < 6 and sorted(axes) == list(range(2, rank)):
        result = _tiled_average(imp, x, x.shape[2:])
    else:
        result = imp.graph.add(OpKind.REDUCTION, [x], kept, [Reduction[name.upper()]])
    return imp.graph.reshape(result, imp.shape(call))


@handles("nn.softmax", "nn.log_softmax")
def _softmax(imp: Importer, call: relax.Call) -> Tensor:
    x = imp.tensor(call.args[0])
    ints = [int(call.attrs.axis) % len(x.shape), call.op.name == "relax.nn.log_softmax"]
    return imp.graph.add(OpKind.SOFTMAX, [x], x.shape, ints)


@handles("nn.layer_norm")
def _layer_norm(imp: Importer, call: relax.Call) -> Tensor:
    x, gamma, beta = (imp.tensor(arg) for arg in call.args)
    axes = sorted(int(a) % len(x.shape) for a in call.attrs.axes)
    if axes != list(range(len(x.shape) - len(axes), len(x.shape))):
        raise imp.error(f"layer_norm over axes {axes} of {x.shape}")
    width = math.prod(x.shape[axis] for axis in axes)
    if not call.attrs.scale:
        gamma = Tensor.constant(np.ones(width, np.float32))
    if not call.attrs.center:
        beta = Tensor.constant(np.zeros(width, np.float32))
    # oneDNN wants two to five axes, whatever the tensor has.
    folded = imp.graph.reshape(x, (math.prod(x.shape[: axes[0]]), width))
    scale, shift = (imp.graph.reshape(t, (width,)) for t in (gamma, beta))
    epsilon = float(call.attrs.epsilon)
    result = imp.graph.add(OpKind.LAYER_NORM, [folded, scale, shift], folded.shape, [], [epsilon])
    return imp.graph.reshape(result, x.shape)
