"""Small and realistic Relax functions in canonical form, built by hand."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.search.dataflow import DataflowGraph, bits


def edges(graph: DataflowGraph) -> list[tuple[int, int]]:
    """Every def-use edge: (definition, user)."""
    return [(used, user) for user in range(len(graph)) for used in bits(graph.preds(user))]


def _weight(*shape: int) -> relax.Expr:
    return relax.const(np.full(shape, 0.1, dtype="float32"))


class Net:
    """A function under construction; each method emits canonical operators and returns a var."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()

    def emit(self, value: relax.Expr) -> relax.Var:
        return self.builder.emit(value)

    def conv(
        self, x: relax.Var, channels: int, kernel: int = 1, stride: int = 1, *, relu: bool = False
    ) -> relax.Var:
        weight = _weight(channels, int(x.ty.shape[1]), kernel, kernel)
        y = self.emit(op.nn.conv2d(x, weight, strides=stride, padding=kernel // 2))
        y = self.emit(op.add(y, _weight(1, channels, 1, 1)))
        return self.emit(op.nn.relu(y)) if relu else y

    def dense(self, x: relax.Var, features: int) -> relax.Var:
        y = self.emit(op.matmul(x, _weight(int(x.ty.shape[-1]), features)))
        return self.emit(op.add(y, _weight(features)))

    def bottleneck(self, x: relax.Var, channels: int, stride: int) -> relax.Var:
        """A residual block; its shortcut has a convolution where the shape changes."""
        y = self.conv(x, channels // 4, relu=True)
        y = self.conv(y, channels // 4, 3, stride, relu=True)
        y = self.conv(y, channels)
        if stride != 1 or int(x.ty.shape[1]) != channels:
            x = self.conv(x, channels, 1, stride)
        return self.emit(op.nn.relu(self.emit(op.add(y, x))))

    def inception(self, x: relax.Var, channels: int) -> relax.Var:
        """Four branches and a concat."""
        a = self.conv(x, channels, relu=True)
        b = self.conv(self.conv(x, channels, relu=True), channels, 3, relu=True)
        c = self.conv(self.conv(x, channels, relu=True), channels, 5, relu=True)
        d = self.emit(op.nn.max_pool2d(x, pool_size=(3, 3), padding=(1, 1)))
        d = self.conv(d, channels, relu=True)
        return self.emit(op.concat([a, b, c, d], axis=1))

    def attention(self, x: relax.Var, heads: int) -> relax.Var:
        """Self-attention and a feed-forward network with GELU, as in BERT; ``x`` is (1, L, D)."""
        _, length, width = (int(size) for size in x.ty.shape)

        def split_heads(y: relax.Var) -> relax.Var:
            y = self.emit(op.reshape(y, (1, length, heads, width // heads)))
            return self.emit(op.permute_dims(y, [0, 2, 1, 3]))

        q, k, v = (split_heads(self.dense(x, width)) for _ in range(3))
        k = self.emit(op.permute_dims(k, [0, 1, 3, 2]))
        scores = self.emit(op.matmul(q, k))
        scores = self.emit(op.multiply(scores, relax.const(0.125)))
        weights = self.emit(op.nn.softmax(scores, axis=-1))
        y = self.emit(op.matmul(weights, v))
        y = self.emit(op.permute_dims(y, [0, 2, 1, 3]))
        y = self.emit(op.reshape(y, (1, length, width)))
        x = self.norm(self.emit(op.add(x, self.dense(y, width))))
        y = self.emit(op.nn.gelu(self.dense(x, 4 * width)))
        return self.norm(self.emit(op.add(x, self.dense(y, width))))

    def norm(self, x: relax.Var) -> relax.Var:
        width = int(x.ty.shape[-1])
        return self.emit(op.nn.layer_norm(x, _weight(width), _weight(width), axes=[-1]))


def function(shape: tuple[int, ...], body: object) -> relax.Function:
    """``main`` of a network: ``body(net, x)`` returns the result or several."""
    net = Net()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with net.builder.function("main", [x]):
        with net.builder.dataflow():
            result = body(net, x)
            if isinstance(result, tuple):
                result = relax.Tuple([net.builder.emit_output(v) for v in result])
            else:
                result = net.builder.emit_output(result)
        net.builder.emit_func_output(result)
    return net.builder.get()["main"]


def resnet50(blocks: tuple[int, ...] = (3, 4, 6, 3)) -> relax.Function:
    """ResNet's convolutional part with bottleneck blocks, pooling, and the classifier."""

    def body(net: Net, x: relax.Var) -> relax.Var:
        x = net.conv(x, 64, 7, 2, relu=True)
        x = net.emit(op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)))
        for stage, count in enumerate(blocks):
            for number in range(count):
                stride = 2 if number == 0 and stage > 0 else 1
                x = net.bottleneck(x, 256 << stage, stride)
        x = net.emit(op.mean(x, axis=[2, 3], keepdims=True))
        x = net.emit(op.reshape(x, (1, int(x.ty.shape[1]))))
        return net.emit(op.nn.softmax(net.dense(x, 1000)))

    return function((1, 3, 64, 64), body)


def residual_block() -> relax.Function:
    return function((1, 8, 8, 8), lambda net, x: net.bottleneck(x, 8, 1))


def inception_block() -> relax.Function:
    return function((1, 8, 8, 8), lambda net, x: net.inception(net.conv(x, 8), 4))


def attention_block() -> relax.Function:
    return function((1, 16, 32), lambda net, x: net.attention(x, 4))


def bert(layers: int = 12) -> relax.Function:
    def body(net: Net, x: relax.Var) -> relax.Var:
        for _ in range(layers):
            x = net.attention(x, 4)
        return x

    return function((1, 16, 32), body)


def densenet(layers: int = 58) -> relax.Function:
    """Each layer sees the concatenation of all before it."""

    def body(net: Net, x: relax.Var) -> relax.Var:
        for _ in range(layers):
            y = net.conv(net.conv(x, 16, relu=True), 8, 3, relu=True)
            x = net.emit(op.concat([x, y], axis=1))
        return x

    return function((1, 8, 8, 8), body)


def wide(branches: int = 32, depth: int = 3) -> relax.Function:
    """Many parallel branches that meet in one concat."""

    def body(net: Net, x: relax.Var) -> relax.Var:
        ends = []
        for _ in range(branches):
            y = x
            for _ in range(depth):
                y = net.conv(y, 8, 3, relu=True)
            ends.append(y)
        return net.conv(net.emit(op.concat(ends, axis=1)), 8)

    return function((1, 8, 8, 8), body)
