"""Small networks with the building blocks of the large ones, made without torch, for tests."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

_OPSET = 17


class GraphWriter:
    """Collects nodes and weights of a graph; every method returns the name of its result."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.random = np.random.default_rng(seed)

    def constant(self, array: NDArray[np.generic]) -> str:
        """An initializer."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, value: float) -> str:
        """A float32 scalar initializer."""
        return self.constant(np.array(value, np.float32))

    def normal(self, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> str:
        """A float32 initializer of normally distributed values."""
        array = self.random.standard_normal(shape, np.float32) * np.float32(deviation)
        return self.constant(array + np.float32(mean))

    def apply(self, kind: str, *inputs: str, **attributes: object) -> str:
        """A node with one result."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def model(
        self,
        name: str,
        inputs: Mapping[str, tuple[int, tuple[int, ...]]],
        output: str,
        shape: tuple[int, ...],
    ) -> ModelProto:
        """The model with these inputs (name to element type and shape) and one float32 output."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(n, kind, s) for n, (kind, s) in inputs.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            self.weights,
        )
        opset = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)


def tiny_mobilenet(
    seed: int = 0, image: int = 32, classes: int = 10, *, strided: bool = True
) -> ModelProto:
    """A stem, inverted residual blocks with and without shortcut, pooling and a classifier.

    As in MobileNetV2 (Sandler et al. 2018, section 3): batch norms unfolded, ReLU6 as ``Clip``.
    Input ``image`` (1, 3, image, image), output (1, classes), float32. Where not ``strided``, the
    block without a shortcut is left out.
    """
    g = GraphWriter(seed)
    x = _conv_norm(g, "image", 3, 8 if strided else 16, kernel=3, stride=2, clip=True)
    if strided:
        x = _inverted_residual(g, x, 8, 16, stride=2)
    x = _inverted_residual(g, x, 16, 16, stride=1)
    x = _conv_norm(g, x, 16, 32, kernel=1, stride=1, clip=True)
    x = g.apply("Flatten", g.apply("GlobalAveragePool", x), axis=1)
    x = g.apply("Gemm", x, g.normal((classes, 32), 0.3), g.normal((classes,), 0.1), transB=1)
    shape = (1, 3, image, image)
    return g.model("tiny_mobilenet", {"image": (TensorProto.FLOAT, shape)}, x, (1, classes))


def tiny_bert(
    seed: int = 0, tokens: int = 16, width: int = 32, heads: int = 4, layers: int = 2
) -> ModelProto:
    """A token embedding and encoder layers as in BERT (Devlin et al. 2019), layer norms as nodes.

    Input ``input_ids`` int64 (1, tokens), below 1000; output float32 (1, tokens, width).
    """
    g = GraphWriter(seed)
    x = g.apply("Gather", g.normal((1000, width), 1.0), "input_ids", axis=0)
    x = g.apply("Add", x, g.normal((1, tokens, width), 0.5))
    x = _layer_norm(g, x, width)
    for _ in range(layers):
        attended = _dense(g, _attention(g, x, tokens, width, heads), width, width)
        x = _layer_norm(g, g.apply("Add", x, attended), width)
        hidden = _gelu(g, _dense(g, x, width, 4 * width))
        x = _layer_norm(g, g.apply("Add", x, _dense(g, hidden, 4 * width, width)), width)
    inputs = {"input_ids": (int(TensorProto.INT64), (1, tokens))}
    return g.model("tiny_bert", inputs, x, (1, tokens, width))


def _conv_norm(
    g: GraphWriter,
    x: str,
    inner: int,
    outer: int,
    *,
    kernel: int,
    stride: int,
    clip: bool,
    groups: int = 1,
) -> str:
    deviation = math.sqrt(2.0 / (inner // groups * kernel * kernel))
    weight = g.normal((outer, inner // groups, kernel, kernel), deviation)
    pad = [kernel // 2] * 4
    x = g.apply("Conv", x, weight, strides=[stride] * 2, pads=pad, group=groups)
    variance = g.constant(g.random.uniform(0.7, 1.3, outer).astype(np.float32))
    norm = (g.normal((outer,), 0.1, mean=1.0), g.normal((outer,), 0.1), g.normal((outer,), 0.1))
    x = g.apply("BatchNormalization", x, *norm, variance)
    return g.apply("Clip", x, g.scalar(0.0), g.scalar(6.0)) if clip else x


def _inverted_residual(g: GraphWriter, x: str, inner: int, outer: int, *, stride: int) -> str:
    wide = 4 * inner
    y = _conv_norm(g, x, inner, wide, kernel=1, stride=1, clip=True)
    y = _conv_norm(g, y, wide, wide, kernel=3, stride=stride, clip=True, groups=wide)
    y = _conv_norm(g, y, wide, outer, kernel=1, stride=1, clip=False)
    return g.apply("Add", x, y) if stride == 1 and inner == outer else y


def _dense(g: GraphWriter, x: str, inner: int, outer: int) -> str:
    product = g.apply("MatMul", x, g.normal((inner, outer), 1.0 / math.sqrt(inner)))
    return g.apply("Add", product, g.normal((outer,), 0.1))


def _layer_norm(g: GraphWriter, x: str, width: int) -> str:
    scale, shift = g.normal((width,), 0.1, mean=1.0), g.normal((width,), 0.1)
    return g.apply("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)


def _gelu(g: GraphWriter, x: str) -> str:
    """GELU through erf, spelled out as exporters before opset 20 do."""
    erf = g.apply("Erf", g.apply("Div", x, g.scalar(math.sqrt(2.0))))
    gate = g.apply("Add", erf, g.scalar(1.0))
    return g.apply("Mul", g.apply("Mul", x, gate), g.scalar(0.5))


def _attention(g: GraphWriter, x: str, tokens: int, width: int, heads: int) -> str:
    split = g.constant(np.array([1, tokens, heads, width // heads], np.int64))
    query, key, value = (
        g.apply("Transpose", g.apply("Reshape", _dense(g, x, width, width), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = g.apply("Div", g.apply("MatMul", query, key), g.scalar(math.sqrt(width / heads)))
    mixed = g.apply("MatMul", g.apply("Softmax", scores, axis=-1), value)
    joined = g.constant(np.array([1, tokens, width], np.int64))
    return g.apply("Reshape", g.apply("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
