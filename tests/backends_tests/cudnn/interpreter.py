"""Runs a cuDNN graph's description in numpy, by its dimensions and strides alone.

Independent of the code that derives descriptions: what a description leaves out or gets wrong shows
in the numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from collage.backends.cudnn.problem import Graph, Kind, Operation
from collage.backends.relax.calls.strided_views import View

Array = NDArray[np.float64]
Shape = tuple[int, ...]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def run(graph: Graph, inputs: Sequence[Array]) -> Array:
    """The memory of a graph's output.

    Parameters
    ----------
    graph : Graph
    inputs : sequence of ndarray
        The memory of each input slot, flat, float64.

    Returns
    -------
    ndarray
        Flat, float64; NaN where nothing was written.
    """
    values: dict[int, Array] = {}
    for index, tensor in enumerate(graph.tensors):
        if 0 <= tensor.slot < len(inputs):
            values[index] = _seen(inputs[tensor.slot], tensor.view)
    for operation in graph.operations:
        operands = [values[index] for index in operation.inputs]
        dims = graph.tensors[operation.output].view.shape
        if operation.kind is Kind.CONV_DGRAD:
            result = _convolution_gradient(operation, operands, dims)
        else:
            result = _COMPUTE[operation.kind](operation, operands)
        assert result.shape == dims, f"{operation.kind}: {result.shape}, described as {dims}"
        values[operation.output] = result
    output = graph.slot_tensor(graph.num_slots - 1)
    assert output.slot == len(inputs)
    memory = np.full(math.prod(output.view.shape), np.nan)
    _seen(memory, output.view)[...] = values[graph.operations[-1].output]
    return memory


def _seen(memory: Array, view: View) -> Array:
    reach = sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)) + 1
    assert reach <= memory.size, f"{view} reaches beyond {memory.size} elements"
    strides = [stride * memory.itemsize for stride in view.strides]
    return as_strided(memory, view.shape, strides)


def _convolution(operation: Operation, operands: list[Array]) -> Array:
    x, w = operands
    rank = x.ndim - 2
    before, after, strides, dilation = np.reshape(operation.ints, (4, rank))
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    filters, per_group, *kernel = w.shape
    groups = x.shape[1] // per_group
    sizes = [
        (x.shape[2 + axis] - dilation[axis] * (kernel[axis] - 1) - 1) // strides[axis] + 1
        for axis in range(rank)
    ]
    out = np.zeros((x.shape[0], filters, *sizes))
    for f, position in itertools.product(range(filters), np.ndindex(*kernel)):
        first = f // (filters // groups) * per_group
        taps = x[:, first : first + per_group, *_places(position, sizes, strides, dilation)]
        out[:, f] += np.einsum("nc...,c->n...", taps, w[f, :, *position])
    return out


def _convolution_gradient(operation: Operation, operands: list[Array], result: Shape) -> Array:
    """What each value of the result got from the convolution's, over all of its filters."""
    y, w = operands
    rank = y.ndim - 2
    before, after, strides, dilation = np.reshape(operation.ints, (4, rank))
    filters, per_group, *kernel = w.shape
    padded = [n + b + a for n, b, a in zip(result[2:], before, after, strict=True)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    places = [(n - r) // s + 1 for n, r, s in zip(padded, reach, strides, strict=True)]
    assert tuple(places) == y.shape[2:], "the convolution has other places than there is data"
    x = np.zeros((*result[:2], *padded))
    groups = result[1] // per_group
    for f, position in itertools.product(range(filters), np.ndindex(*kernel)):
        first = f // (filters // groups) * per_group
        added = np.einsum("n...,c->nc...", y[:, f], w[f, :, *position])
        x[:, first : first + per_group, *_places(position, places, strides, dilation)] += added
    return x[:, :, *(slice(b, b + n) for b, n in zip(before, result[2:], strict=True))]


def _places(
    position: Sequence[int], sizes: Sequence[int], strides: Array, dilation: Array
) -> list[slice]:
    """Where a tap of a kernel reads the padded data."""
    return [
        slice(p * d, p * d + (n - 1) * s + 1, s)
        for p, n, s, d in zip(position, sizes, strides, dilation, strict=True)
    ]


def _pool(reduce: Callable[[Array, Array], Array], fill: float) -> Callable[..., Array]:
    def apply(operation: Operation, operands: list[Array]) -> Array:
        rank = operands[0].ndim - 2
        window, strides, before, after = np.reshape(operation.ints, (4, rank))
        widths = [(0, 0), (0, 0), *zip(before, after, strict=True)]
        x = np.pad(operands[0], widths, constant_values=fill)
        inside = np.pad(np.ones_like(operands[0]), widths)
        sizes = [(x.shape[2 + a] - window[a]) // strides[a] + 1 for a in range(rank)]
        out = np.zeros((*x.shape[:2], *sizes))
        for place in np.ndindex(*sizes):
            at = (..., *(slice(p * s, p * s + w) for p, s, w in zip(place, strides, window)))  # noqa: B905
            out[:, :, *place] = reduce(x[at], inside[at])
        return out

    return apply


def _window(x: Array) -> Shape:
    return tuple(range(2, x.ndim))


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _layer_norm(operation: Operation, operands: list[Array]) -> Array:
    x, scale, bias = operands
    mean = x.mean(axis=1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + operation.floats[0]) * scale + bias


def _rms_norm(operation: Operation, operands: list[Array]) -> Array:
    x, scale = operands
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + operation.floats[0]) * scale


def _attention(operation: Operation, operands: list[Array]) -> Array:
    q, k, v, *bias = operands
    scores = q @ np.swapaxes(k, -1, -2) * operation.floats[0]
    if bias:
        scores = scores + bias[0]
    queries, keys = scores.shape[-2:]
    if operation.ints[0]:
        shift = keys - queries if operation.ints[0] == 2 else 0
        scores = np.where(np.tri(queries, keys, shift, dtype=bool), scores, -np.inf)
    return _softmax(scores) @ v


def _unary(function: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda _, operands: function(operands[0])


def _relu(x: Array, lower: float, upper: float, slope: float) -> Array:
    return np.where(x < lower, lower + slope * (x - lower), np.minimum(x, upper))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_COMPUTE: dict[Kind, Callable[[Operation, list[Array]], Array]] = {
    Kind.CONV: _convolution,
    Kind.MATMUL: lambda _, operands: operands[0] @ operands[1],
    Kind.ADD: lambda _, operands: operands[0] + operands[1],
    Kind.RELU: lambda operation, operands: _relu(operands[0], *operation.floats),
    Kind.SIGMOID: _unary(lambda x: 1 / (1 + np.exp(-x))),
    Kind.TANH: _unary(np.tanh),
    Kind.SILU: _unary(lambda x: x / (1 + np.exp(-x))),
    Kind.GELU: _unary(lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2)))),
    Kind.GELU_TANH: _unary(_gelu_tanh),
    Kind.MAX_POOL: _pool(lambda x, _: x.max(axis=_window(x)), -np.inf),
    Kind.AVG_POOL_INCLUDE_PADDING: _pool(lambda x, _: x.mean(axis=_window(x)), 0.0),
    Kind.AVG_POOL_EXCLUDE_PADDING: _pool(
        lambda x, inside: x.sum(axis=_window(x)) / inside.sum(axis=_window(x)), 0.0
    ),
    Kind.SOFTMAX: _unary(_softmax),
    Kind.LAYER_NORM: _layer_norm,
    Kind.RMS_NORM: _rms_norm,
    Kind.ATTENTION: _attention,
}
