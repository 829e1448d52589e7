"""Evaluates a TensorRT network in numpy, layer by layer as TensorRT's manual defines them.

No engine can run without a GPU, but a network can be read back: this shows that what the converters
wrote means what Relax meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.backends_tests.tensorrt.onnx_layers import convolution, pooling, resize

Array = NDArray[Any]
Layer = Any

_CLASSES = {
    "ACTIVATION": "IActivationLayer",
    "ATTENTION_INPUT": "IAttentionInputLayer",
    "ATTENTION_OUTPUT": "IAttentionOutputLayer",
    "CAST": "ICastLayer",
    "CONCATENATION": "IConcatenationLayer",
    "CONSTANT": "IConstantLayer",
    "CONVOLUTION": "IConvolutionLayer",
    "DECONVOLUTION": "IDeconvolutionLayer",
    "DEQUANTIZE": "IDequantizeLayer",
    "ELEMENTWISE": "IElementWiseLayer",
    "GATHER": "IGatherLayer",
    "IDENTITY": "IIdentityLayer",
    "MATRIX_MULTIPLY": "IMatrixMultiplyLayer",
    "NORMALIZATION": "INormalizationLayer",
    "PARAMETRIC_RELU": "IParametricReLULayer",
    "POOLING": "IPoolingLayer",
    "QUANTIZE": "IQuantizeLayer",
    "REDUCE": "IReduceLayer",
    "RESIZE": "IResizeLayer",
    "SELECT": "ISelectLayer",
    "SHUFFLE": "IShuffleLayer",
    "SLICE": "ISliceLayer",
    "SOFTMAX": "ISoftMaxLayer",
    "TOPK": "ITopKLayer",
    "UNARY": "IUnaryLayer",
}


def evaluate_network(trt: Any, network: Any, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a network; floats are computed in float64.

    Parameters
    ----------
    trt : module
        The package that the network was made with.
    network : INetworkDefinition
    inputs : sequence of ndarray
        In the network's order.
    """
    values = {network.get_input(i).name: _widened(inputs[i]) for i in range(network.num_inputs)}
    with np.errstate(all="ignore"):
        for index in range(network.num_layers):
            layer = network.get_layer(index)
            kind = layer.type.name
            # The bindings hand out every layer as the base class.
            layer.__class__ = getattr(trt, _CLASSES[kind])
            given = [
                values[layer.get_input(i).name]
                for i in range(layer.num_inputs)
                if layer.get_input(i) is not None
            ]
            results = _LAYERS[kind](layer, given)
            results = results if isinstance(results, list) else [results]
            for place, result in enumerate(results):
                tensor = layer.get_output(place)
                # What goes from the first to the second half of an attention is TensorRT's own.
                same = tuple(tensor.shape) == result.shape or kind == "ATTENTION_INPUT"
                assert same, f"{kind}: {result.shape}, not {tuple(tensor.shape)}"
                values[tensor.name] = result
    return [values[network.get_output(i).name] for i in range(network.num_outputs)]


def _widened(array: Array) -> Array:
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


def _constant(layer: Layer, _: list[Array]) -> Array:
    return _widened(np.asarray(layer.weights)).reshape(tuple(layer.shape))


def _cast(layer: Layer, given: list[Array]) -> Array:
    names = {"INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_, "INT8": np.int8}
    return given[0].astype(names.get(layer.to_type.name, np.float64))


def _activation(layer: Layer, given: list[Array]) -> Array:
    (x,), a, b = given, layer.alpha, layer.beta
    functions: Mapping[str, Callable[[], Array]] = {
        "RELU": lambda: np.maximum(x, 0),
        "SIGMOID": lambda: 1 / (1 + np.exp(-x)),
        "TANH": lambda: np.tanh(x),
        "LEAKY_RELU": lambda: np.where(x >= 0, x, a * x),
        "SELU": lambda: np.where(x >= 0, b * x, b * (a * np.exp(x) - a)),
        "SOFTPLUS": lambda: a * np.log(np.exp(b * x) + 1),
        "CLIP": lambda: np.clip(x, a, b),
        "GELU_ERF": lambda: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
        "GELU_TANH": lambda: (
            0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        ),
    }
    return functions[layer.type.name]()


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


_ELEMENTWISE = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "SUB": np.subtract,
    "DIV": np.divide,
    "POW": np.power,
    "FLOOR_DIV": np.floor_divide,
    "AND": np.logical_and,
    "OR": np.logical_or,
    "XOR": np.logical_xor,
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "LESS": np.less,
}
_UNARY = {
    "EXP": np.exp,
    "LOG": np.log,
    "SQRT": np.sqrt,
    "RECIP": np.reciprocal,
    "ABS": np.abs,
    "NEG": np.negative,
    "SIN": np.sin,
    "COS": np.cos,
    "TAN": np.tan,
    "SINH": np.sinh,
    "COSH": np.cosh,
    "ASIN": np.arcsin,
    "ACOS": np.arccos,
    "ATAN": np.arctan,
    "ASINH": np.arcsinh,
    "ACOSH": np.arccosh,
    "ATANH": np.arctanh,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ROUND": np.rint,
    "ERF": _erf,
    "SIGN": np.sign,
    "NOT": np.logical_not,
}
_REDUCE = {"SUM": np.sum, "PROD": np.prod, "MAX": np.max, "MIN": np.min, "AVG": np.mean}


def _elementwise(layer: Layer, given: list[Array]) -> Array:
    a, b = given
    # Broadcasting is between equal ranks only.
    assert a.ndim == b.ndim
    return np.asarray(_ELEMENTWISE[layer.op.name](a, b))


def _unary(layer: Layer, given: list[Array]) -> Array:
    return np.asarray(_UNARY[layer.op.name](given[0]))


def _axes(bits: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(8) if bits >> axis & 1)


def _reduce(layer: Layer, given: list[Array]) -> Array:
    function = _REDUCE[layer.op.name]
    return np.asarray(function(given[0], axis=_axes(layer.axes), keepdims=layer.keep_dims))


def _softmax(layer: Layer, given: list[Array]) -> Array:
    axes = _axes(layer.axes)
    powers = np.exp(given[0] - given[0].max(axis=axes, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axes, keepdims=True))


def _topk(layer: Layer, given: list[Array]) -> list[Array]:
    assert layer.k == 1
    (axis,) = _axes(layer.axes)
    x = given[0]
    find = np.argmax if layer.op.name == "MAX" else np.argmin
    places = np.expand_dims(find(x, axis=axis), axis)
    return [np.take_along_axis(x, places, axis), places]


def _normalization(layer: Layer, given: list[Array]) -> Array:
    x, scale, bias = given
    assert scale.ndim == bias.ndim == x.ndim and layer.num_groups == 1
    axes = _axes(layer.axes)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + layer.epsilon) * scale + bias)


def _matmul(layer: Layer, given: list[Array]) -> Array:
    a, b = given
    assert a.ndim == b.ndim
    a = a.swapaxes(-1, -2) if layer.op0.name == "TRANSPOSE" else a
    b = b.swapaxes(-1, -2) if layer.op1.name == "TRANSPOSE" else b
    return np.asarray(a @ b)


def _attention(layer: Layer, given: list[Array]) -> Array:
    """All of it; the second half of the pair hands the result on."""
    query, key, value = given[:3]
    whole = layer.attention
    assert whole.norm_op.name == "SOFTMAX"
    scores = query @ key.swapaxes(-1, -2)
    if whole.mask is not None:
        scores = scores + given[3]
    kind = whole.causal_kind.name
    if kind != "NONE":
        rows, columns = scores.shape[-2:]
        last = columns - rows if kind == "LOWER_RIGHT" else 0
        scores = np.where(np.tri(rows, columns, last, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True) @ value)


def _shuffle(layer: Layer, given: list[Array]) -> Array:
    (x,) = given
    x = x.transpose(list(layer.first_transpose)[: x.ndim])
    wanted = layer.reshape_dims
    if wanted is not None and len(wanted) >= 0:
        x = x.reshape(tuple(wanted))
    order = list(layer.second_transpose)[: x.ndim]
    return x.transpose(order)


def _slice(layer: Layer, given: list[Array]) -> Array:
    x, mode = given[0], layer.mode.name
    start, shape, stride = list(layer.start), list(layer.shape), list(layer.stride)
    inside = np.ones([1] * x.ndim, bool)
    for axis in range(x.ndim):
        extent = x.shape[axis]
        places = start[axis] + np.arange(shape[axis]) * stride[axis]
        valid = (places >= 0) & (places < extent)
        if mode == "STRICT_BOUNDS":
            assert valid.all(), f"{places} of {extent}"
        elif mode == "WRAP":
            places = places % extent
        elif mode == "REFLECT":
            period = max(2 * (extent - 1), 1)
            places = np.abs((places + extent - 1) % period - (extent - 1))
        else:
            places = np.clip(places, 0, extent - 1)
        x = np.take(x, places, axis=axis)
        along = [1] * inside.ndim
        along[axis] = len(places)
        inside = inside & valid.reshape(along)
    if mode == "FILL":
        x = np.where(inside, x, given[1])
    return x


def _gather(layer: Layer, given: list[Array]) -> Array:
    (x, indices), mode = given, layer.mode.name
    assert indices.min() >= 0
    if mode == "DEFAULT":
        return np.take(x, indices, axis=layer.axis)
    if mode == "ELEMENT":
        return np.take_along_axis(x, indices, axis=layer.axis)
    batches = layer.num_elementwise_dims
    shape = x.shape[:batches]
    places = np.meshgrid(*map(np.arange, shape), indexing="ij") if batches else []
    wide = [p.reshape(shape + (1,) * (indices.ndim - 1 - batches)) for p in places]
    return np.asarray(x[(*wide, *np.moveaxis(indices, -1, 0))])


def _quantize(layer: Layer, given: list[Array]) -> Array:
    x, scale = given
    return np.clip(np.rint(x / _along(layer, scale, x.ndim)), -128, 127).astype(np.int8)


def _dequantize(layer: Layer, given: list[Array]) -> Array:
    x, scale = given
    return np.asarray(x.astype(np.float64) * _along(layer, scale, x.ndim))


def _along(layer: Layer, scale: Array, rank: int) -> Array:
    if scale.size == 1:
        return scale.reshape(())
    shape = [1] * rank
    shape[layer.axis] = scale.size
    return scale.reshape(shape)


_LAYERS: Mapping[str, Callable[[Layer, list[Array]], Array | list[Array]]] = {
    "ACTIVATION": _activation,
    "ATTENTION_INPUT": _attention,
    "ATTENTION_OUTPUT": lambda _, given: given[0],
    "CAST": _cast,
    "CONCATENATION": lambda layer, given: np.concatenate(given, axis=layer.axis),
    "CONSTANT": _constant,
    "CONVOLUTION": convolution,
    "DECONVOLUTION": convolution,
    "DEQUANTIZE": _dequantize,
    "ELEMENTWISE": _elementwise,
    "GATHER": _gather,
    "IDENTITY": lambda _, given: given[0],
    "MATRIX_MULTIPLY": _matmul,
    "NORMALIZATION": _normalization,
    "PARAMETRIC_RELU": lambda _, given: np.where(given[0] < 0, given[0] * given[1], given[0]),
    "POOLING": pooling,
    "QUANTIZE": _quantize,
    "REDUCE": _reduce,
    "RESIZE": resize,
    "SELECT": lambda _, given: np.where(*given),
    "SHUFFLE": _shuffle,
    "SLICE": _slice,
    "SOFTMAX": _softmax,
    "TOPK": _topk,
    "UNARY": _unary,
}
