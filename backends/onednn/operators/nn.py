"""Importers of convolution, matmul, pooling, normalization and softmax."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from collage.backends.onednn.graph import OpKind, Pool, Reduction, Tensor
from collage.backends.onednn.partition import Importer, handles
from collage.backends.relax.pooling import PoolPadding


@handles("nn.conv2d")
def _conv2d(imp: Importer, call: relax.Call) -> Tensor:
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


@handles("matmul")
def _matmul(imp: Importer, call: relax.Call) -> Tensor:
    a, b = imp.tensor(call.args[0]), imp.tensor(call.args[1])
    shape = imp.shape(call)
    if len(b.shape) > 2 or len(a.shape) < len(b.shape):
        rank = max(len(a.shape), len(b.shape))
        a = imp.graph.reshape(a, (1,) * (rank - len(a.shape)) + a.shape)
        b = imp.graph.reshape(b, (1,) * (rank - len(b.shape)) + b.shape)
    return imp.graph.add(OpKind.MATMUL, [a, b], shape, range(len(shape)))


@handles("nn.max_pool2d", "nn.avg_pool2d")
def _pool2d(imp: Importer, call: relax.Call) -> Tensor:
    x, attrs = imp.tensor(call.args[0]), call.attrs
    if call.op.name == "relax.nn.max_pool2d":
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


def _global_average(imp: Importer, x: Tensor, window: tuple[int, int]) -> Tensor:
    """Mean over windows that tile the picture."""
    batch, channels, height, width = x.shape
    shape = (batch, channels, height // window[0], width // window[1])
    ints = [Pool.AVERAGE, *window, *window, 0, 0, 0, 0, 0, 0]
    return imp.graph.add(OpKind.POOL, [x], shape, ints)


@handles("nn.adaptive_avg_pool2d")
def _adaptive_avg_pool2d(imp: Importer, call: relax.Call) -> Tensor:
    x, shape = imp.tensor(call.args[0]), imp.shape(call)
    if x.shape[2] % shape[2] or x.shape[3] % shape[3]:
        raise imp.error(f"adaptive pooling of {x.shape[2:]} to {shape[2:]} has uneven windows")
    return _global_average(imp, x, (x.shape[2] // shape[2], x.shape[3] // shape[3]))


@handles("mean", "sum", "max", "min")
def _reduction(imp: Importer, call: relax.Call) -> Tensor:
    x = imp.tensor(call.args[0])
    rank = len(x.shape)
    axes = range(rank) if call.attrs.axis is None else [int(a) % rank for a in call.attrs.axis]
    kept = tuple(1 if i in axes else extent for i, extent in enumerate(x.shape))
    name = str(call.op.name).removeprefix("relax.")
    if name == "mean" and rank == 4 and sorted(axes) == [2, 3]:
        result = _global_average(imp, x, (x.shape[2], x.shape[3]))
    else:
        result = imp.graph.add(OpKind.REDUCTION, [x], kept, [Reduction[name.upper()]])
    return imp.graph.reshape(result, imp.shape(call))


@handles("nn.softmax")
def _softmax(imp: Importer, call: relax.Call) -> Tensor:
    x = imp.tensor(call.args[0])
    return imp.graph.add(OpKind.SOFTMAX, [x], x.shape, [int(call.attrs.axis) % len(x.shape)])


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
    folded = imp.graph.reshape(x, (*x.shape[: axes[0]], width))
    scale, shift = (imp.graph.reshape(t, (width,)) for t in (gamma, beta))
    epsilon = float(call.attrs.epsilon)
    result = imp.graph.add(OpKind.LAYER_NORM, [folded, scale, shift], folded.shape, [], [epsilon])
    return imp.graph.reshape(result, x.shape)
