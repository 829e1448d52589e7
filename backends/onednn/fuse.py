"""Fusing a region's graph: what a kernel can apply to its own result becomes part of it."""

from __future__ import annotations

import math

from collage.backends.onednn.affine import merge_affine
from collage.backends.onednn.graph import (
    COMMUTATIVE,
    Binary,
    Graph,
    Node,
    OpKind,
    PostOp,
    Tensor,
)
from collage.backends.onednn.idioms import simplify

_CONVOLUTIONS = (OpKind.CONV, OpKind.DECONV)

_PRODUCTS = (OpKind.MATMUL, OpKind.BYTES_MATMUL)

_FUSABLE = frozenset({*_CONVOLUTIONS, *_PRODUCTS, OpKind.BINARY, OpKind.ELTWISE})
"""Nodes whose kernels (or the runtime on their behalf) take post-operators."""

_NUM_OPERANDS = {OpKind.MATMUL: 2, OpKind.BYTES_MATMUL: 5}
"""Of products; one more is a bias."""

_MAX_POST_OPS = 16
"""oneDNN takes 32; chains this long do not occur."""


def optimize(graph: Graph) -> None:
    """Rewrite a freshly imported graph into the one that the runtime should run."""
    graph.drop_dead()
    simplify(graph)
    _scale_weights(graph)
    _fuse_post_ops(graph)
    merge_affine(graph)
    _extract_bias(graph)
    _flatten_matmuls(graph)
    _order_matmul_results(graph)
    graph.drop_dead()


def _scale_weights(graph: Graph) -> None:
    """Scale a convolution's weights in place of the channels of a picture that only it reads.

    What is squeezed and excited is larger than the weights that read it, in all but the last stages
    of a network. A picture that nobody else reads either is left alone: the scaling is fused to
    what computes it.
    """
    consumers, producers = graph.consumers(), graph.producers()
    outputs = set(graph.outputs)
    nodes, graph.nodes = graph.nodes, []
    for node in nodes:
        gate = producers.get(node.inputs[0]) if node.kind is OpKind.CONV else None
        if gate is not None and gate.output not in outputs and _scales_channels(gate, node):
            x, factors = gate.inputs
            if len(consumers[gate.output]) == 1 and len(consumers[x]) > 1:
                weights = node.inputs[1]
                scaled = Tensor(weights.shape)
                graph.nodes.append(Node(OpKind.SCALE_WEIGHTS, [weights, factors], scaled))
                node.inputs[:2] = [x, scaled]
        graph.nodes.append(node)
    graph.drop_dead()


def _scales_channels(gate: Node, convolution: Node) -> bool:
    """Whether a node multiplies each channel of one picture with a number, and weights are few."""
    if gate.kind is not OpKind.BINARY or gate.ints[0] != Binary.MUL:
        return False
    x, factors = gate.inputs
    batch, channels, *pixels = x.shape if len(x.shape) > 2 else (0, 0)
    weights = convolution.inputs[1]
    if batch != 1 or factors.shape != (1, channels, *(1 for _ in pixels)):
        return False
    if len(weights.shape) != len(x.shape) or weights.array is None or factors.array is not None:
        return False
    return 3 * weights.array.size <= 2 * math.prod(x.shape)


def _fuse_post_ops(graph: Graph) -> None:
    """Let each kernel absorb the chain of single users that follows it.

    The fused node runs where the last absorbed one stood: all its operands are there by then, and
    nobody else reads what it computed before.
    """
    consumers = graph.consumers()
    outputs = set(graph.outputs)
    position = {node: index for index, node in enumerate(graph.nodes)}
    absorbed: set[Node] = set()
    for node in graph.nodes:
        if node in absorbed or node.kind not in _FUSABLE:
            continue
        while len(node.post_ops) < _MAX_POST_OPS:
            users = consumers.get(node.output, [])
            if len(users) != 1 or node.output in outputs:
                break
            user = users[0]
            post_op = _as_post_op(node, user)
            if post_op is None:
                break
            if post_op.tensor is not None:
                readers = consumers[post_op.tensor]
                readers[readers.index(user)] = node
            node.post_ops.append(post_op)
            # A user that had absorbed others already brings them along.
            node.post_ops.extend(user.post_ops)
            for tensor in (p.tensor for p in user.post_ops if p.tensor is not None):
                consumers[tensor][consumers[tensor].index(user)] = node
            node.output = user.output
            position[node] = position[user]
            absorbed.add(user)
    kept = (node for node in graph.nodes if node not in absorbed)
    graph.nodes = sorted(kept, key=position.__getitem__)


def _as_post_op(node: Node, user: Node) -> PostOp | None:
    """The user as a post-operator of the node that computes one of its operands.

    None when the node's value is no operand, but read along by a post-operator of the user's own.
    """
    if not any(operand is node.output for operand in user.inputs):
        return None
    if user.kind is OpKind.ELTWISE:
        return PostOp(user.ints[0], alpha=user.floats[0], beta=user.floats[1])
    if user.kind is not OpKind.BINARY or node.kind is OpKind.ELTWISE:
        return None
    algorithm = Binary(user.ints[0])
    a, b = user.inputs
    if a is node.output:
        other = b
    elif algorithm in COMMUTATIVE and a.shape == b.shape:
        other = a
    else:
        return None
    if not _kernel_broadcasts(node, other.shape):
        return None
    if algorithm is Binary.PRELU and node.kind not in _CONVOLUTIONS:
        return None
    return PostOp(algorithm, tensor=other)


def _kernel_broadcasts(node: Node, shape: tuple[int, ...]) -> bool:
    """Whether kernels of this kind read an operand of this shape while writing the result."""
    result = node.output.shape
    if shape == result:
        return True
    if node.kind in _PRODUCTS:
        if len(node.inputs[1].shape) == 2:  # will be flattened to two dimensions
            return shape == (1,) * (len(result) - 1) + result[-1:]
        return True
    per_channel = (1, *result[1:2], *(1,) * (len(result) - 2))
    return shape == per_channel


def _extract_bias(graph: Graph) -> None:
    """A constant added first, one value per channel or column, becomes the kernel's own bias."""
    for node in graph.nodes:
        if node.kind not in (*_CONVOLUTIONS, *_PRODUCTS) or not node.post_ops:
            continue
        first = node.post_ops[0]
        if first.tensor is None or first.tensor.array is None or first.algorithm != Binary.ADD:
            continue
        result = node.output.shape
        if node.kind in _CONVOLUTIONS:
            shape: tuple[int, ...] = (1, result[1], *(1,) * (len(result) - 2))
            bias: tuple[int, ...] = (result[1],)
        else:
            shape = bias = (1,) * (len(result) - 1) + result[-1:]
        if first.tensor.shape == shape:
            node.inputs.append(graph.reshape(first.tensor, bias))
            del node.post_ops[0]


def _flatten_matmuls(graph: Graph) -> None:
    """Products with a matrix of weights run on two dimensions, so that rows are one loop."""
    nodes, graph.nodes = graph.nodes, []
    for node in nodes:
        result = node.output.shape
        if node.kind in _PRODUCTS and len(node.inputs[1].shape) == 2 and len(result) > 2:
            flat = (math.prod(result[:-1]), result[-1])
            x = node.inputs[0]
            node.inputs[0] = graph.reshape(x, (flat[0], x.shape[-1]))
            if len(node.inputs) > _NUM_OPERANDS[node.kind]:
                node.inputs[-1] = graph.reshape(node.inputs[-1], (1, flat[1]))
            node.post_ops = [_flat_post_op(graph, p, result, flat) for p in node.post_ops]
            node.ints = [0, 1]
            output, node.output = node.output, Tensor(flat)
            graph.nodes += [node, Node(OpKind.RESHAPE, [node.output], output)]
        else:
            graph.nodes.append(node)


def _flat_post_op(
    graph: Graph, post_op: PostOp, result: tuple[int, ...], flat: tuple[int, int]
) -> PostOp:
    if post_op.tensor is None:
        return post_op
    shape = flat if post_op.tensor.shape == result else (1, flat[1])
    return PostOp(post_op.algorithm, tensor=graph.reshape(post_op.tensor, shape))


def _order_matmul_results(graph: Graph) -> None:
    """A batched product that is only permuted afterwards writes its result in that order."""
    consumers = graph.consumers()
    for node in graph.nodes:
        users = consumers.get(node.output, [])
        plain = node.kind is OpKind.MATMUL and node.output not in graph.outputs
        if not plain or len(users) != 1 or users[0].kind is not OpKind.PERMUTE:
            continue
        # A whole tensor read along would have to lie in the same order.
        if all(p.tensor is None or p.tensor.shape != node.output.shape for p in node.post_ops):
            node.ints = list(users[0].ints)
