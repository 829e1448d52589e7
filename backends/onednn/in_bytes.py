"""Convolutions of values that were rounded to bytes, on those bytes: what a region shows of them.

A quantized network is imported as float32, each value rounded to steps on its way: ``step * k`` for
a whole number ``k`` in a range of 256. Where a region holds both the rounding and a convolution of
its results, whose weights are whole numbers too, the convolution reads and writes bytes. Sums are
exact then; everything behind them is computed as before, in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collage.backends.onednn.graph import (
    Binary,
    Dtype,
    Eltwise,
    Graph,
    Node,
    OpKind,
    Pool,
    PostOp,
    Tensor,
)

_SAMPLES = 64
"""Weights of a channel that are looked at before all of them are."""

_CLOSE = 4 * 2.0**-23
"""How far off float32 may have a weight, relative to the channel's largest."""

_MOST_POST_OPS = 24
"""Of oneDNN's 32."""


@dataclass(frozen=True)
class Bytes:
    """What bytes stand for: ``(byte - point) * step``."""

    step: float
    point: int


def use_bytes(graph: Graph) -> None:
    """Let convolutions read and write bytes where a fused graph shows that they can.

    Parameters
    ----------
    graph : Graph
        Changed in place.
    """
    rounded = _rounded_once(graph)
    convolutions = _byte_convolutions(graph, rounded)
    if not convolutions:
        return
    bytes_of = _needed(graph, convolutions)
    for node in graph.nodes:
        if node in convolutions:
            _convolve_bytes(node, rounded[node.inputs[0]], convolutions[node])
    _store_bytes(graph, rounded, bytes_of)
    graph.drop_dead()


def _rounded_once(graph: Graph) -> dict[Tensor, Bytes]:
    """Tensors that hold rounded values; rounding them to the same steps again is left out."""
    found: dict[Tensor, Bytes] = {}
    same: dict[Tensor, Tensor] = {}
    nodes = []
    for node in graph.nodes:
        _read_others(node, same)
        steps = _steps_of(node)
        source = node.inputs[0]
        again = node.kind is OpKind.BINARY and len(node.post_ops) == 3
        if steps and again and found.get(source) == steps and node.output not in graph.outputs:
            same[node.output] = source
            continue
        if steps:
            found[node.output] = steps
        elif _is_max_pool(node) and source in found:
            found[node.output] = found[source]
        nodes.append(node)
    graph.nodes = nodes
    return found


def _read_others(node: Node, others: dict[Tensor, Tensor]) -> None:
    node.inputs = [others.get(tensor, tensor) for tensor in node.inputs]
    node.post_ops = [
        PostOp(p.algorithm, p.alpha, p.beta, others.get(p.tensor, p.tensor)) if p.tensor else p
        for p in node.post_ops
    ]


def _is_max_pool(node: Node) -> bool:
    return node.kind is OpKind.POOL and node.ints[0] == Pool.MAX


def _steps_of(node: Node) -> Bytes | None:
    """What the results of a node are rounded to, where that is the last that it does."""
    chain = list(node.post_ops)
    if node.kind is OpKind.BINARY:
        chain.insert(0, PostOp(node.ints[0], tensor=node.inputs[1]))
    if len(chain) < 4:
        return None
    divide, round_, clip, scale = chain[-4:]
    kinds = (round_.algorithm, clip.algorithm, scale.algorithm)
    if any(p.tensor is not None for p in (round_, clip, scale)):
        return None
    if kinds != (Eltwise.ROUND, Eltwise.CLIP, Eltwise.LINEAR) or divide.algorithm != Binary.DIV:
        return None
    divisor = None if divide.tensor is None else divide.tensor.array
    # The operand of a node of its own that is read along is the first of two.
    if divisor is None or (divisor != divisor.flat[0]).any() or scale.beta != 0.0:
        return None
    step, low = float(divisor.flat[0]), clip.alpha
    whole = low == round(low) and -255 <= low <= 0 and clip.beta - low == 255
    if not whole or not step > 0 or np.float32(scale.alpha) != np.float32(step):
        return None
    return Bytes(step, -int(low))


def _byte_convolutions(
    graph: Graph, rounded: dict[Tensor, Bytes]
) -> dict[Node, tuple[np.ndarray, np.ndarray]]:
    """Convolutions of rounded values with weights that are whole numbers, with those."""
    found = {}
    for node in graph.nodes:
        if node.kind is OpKind.CONV and node.inputs[0] in rounded:
            weights = node.inputs[1]
            grouped = len(weights.shape) > len(node.output.shape)
            if weights.array is not None and (
                whole := whole_weights(weights.array, 2 if grouped else 1)
            ):
                found[node] = whole
    return found


def whole_weights(weights: np.ndarray, leading: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Signed bytes and a scale for each channel that stand for weights; None where there are none.

    Parameters
    ----------
    weights : ndarray
        Of float32.
    leading : int
        How many of its axes count channels.

    Returns
    -------
    tuple[np.ndarray, np.ndarray] or None
        The bytes in the weights' shape, and the scales in float32.
    """
    rows = weights.reshape(math.prod(weights.shape[:leading]), -1)
    if 0 in rows.shape or not np.isfinite(rows).all():
        return None
    largest = np.abs(rows).max(1).astype(np.float64)
    largest[largest == 0] = 1.0
    scales = np.zeros(len(rows))
    # A few weights tell almost always. Most quantizers make the largest one 127 steps.
    few = rows[:, :: max(1, rows.shape[1] // _SAMPLES)].astype(np.float64)
    for most in (127, *range(1, 127), 128):
        left = np.flatnonzero(scales == 0)
        if left.size == 0:
            break
        scale = largest[left] / most
        fits = _fits(few[left], scale)
        fits[fits] = _fits(rows[left[fits]].astype(np.float64), scale[fits])
        scales[left[fits]] = scale[fits]
    if not scales.all():
        return None
    whole = np.rint(rows / scales[:, None]).astype(np.int8)
    return whole.reshape(weights.shape), scales.astype(np.float32)


def _fits(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Of which rows these scales make signed bytes."""
    ratios = rows / scales[:, None]
    whole = np.rint(ratios)
    exact = np.abs(ratios - whole).max(1, initial=0) <= _CLOSE * 128
    fits: np.ndarray = exact & (whole.max(1) <= 127) & (whole.min(1) >= -128)
    return fits


def _needed(
    graph: Graph, convolutions: dict[Node, tuple[np.ndarray, np.ndarray]]
) -> dict[Tensor, Tensor]:
    """The bytes of each rounded tensor that a convolution reads, through pools too."""
    tensors = {node.inputs[0] for node in convolutions}
    for node in reversed(graph.nodes):
        if _is_max_pool(node) and node.output in tensors:
            tensors.add(node.inputs[0])
    order = [t for node in graph.nodes for t in node.writes() if t in tensors]
    return {tensor: Tensor(tensor.shape, dtype=Dtype.UINT8) for tensor in order}


def _convolve_bytes(node: Node, steps: Bytes, whole: tuple[np.ndarray, np.ndarray]) -> None:
    weights, scales = whole
    node.kind = OpKind.BYTES_CONV
    both = scales.astype(np.float64) * steps.step
    constants = [Tensor.constant(weights), Tensor.constant(both.astype(np.float32))]
    node.inputs[1:2] = constants
    node.floats = [float(steps.point)]


def _store_bytes(
    graph: Graph, rounded: dict[Tensor, Bytes], bytes_of: dict[Tensor, Tensor]
) -> None:
    """Write bytes, read them where they are read, and make floats of them for all others."""
    nodes: list[Node] = []
    for node in graph.nodes:
        tensor = node.output
        if node.kind is OpKind.BYTES_CONV:
            node.inputs[0] = bytes_of[node.inputs[0]]
            _add_bytes(node, rounded, bytes_of)
        nodes.append(node)
        if tensor not in bytes_of:
            continue
        steps, stored = rounded[tensor], bytes_of[tensor]
        if _is_max_pool(node):
            node.inputs[0], node.output = bytes_of[node.inputs[0]], stored
        elif node.kind in (OpKind.BYTES_CONV, OpKind.BINARY):
            shift = PostOp(Eltwise.LINEAR, alpha=1.0, beta=float(steps.point))
            node.post_ops[-2:] = [shift]
            node.output = stored
            _divide_by_one_number(node)
        else:
            divisor = Tensor.constant(np.full((1,) * len(tensor.shape), steps.step))
            shift = PostOp(Eltwise.LINEAR, alpha=1.0, beta=float(steps.point))
            again = [PostOp(Eltwise.ROUND), shift]
            ints: list[int] = [Binary.DIV]
            nodes.append(Node(OpKind.BINARY, [tensor, divisor], stored, ints, post_ops=again))
            continue
        floats = [steps.step, float(steps.point)]
        nodes.append(Node(OpKind.DEQUANTIZE, [stored], tensor, floats=floats))
    graph.nodes = nodes


def _divide_by_one_number(node: Node) -> None:
    """The last division's operand, which is one number for each channel, as a single one."""
    for index in reversed(range(len(node.post_ops))):
        divide = node.post_ops[index]
        if divide.tensor is not None and divide.algorithm == Binary.DIV:
            assert divide.tensor.array is not None
            number = divide.tensor.array.reshape(-1)[:1].reshape((1,) * len(divide.tensor.shape))
            node.post_ops[index] = PostOp(Binary.DIV, tensor=Tensor.constant(number))
            return


def _add_bytes(node: Node, rounded: dict[Tensor, Bytes], bytes_of: dict[Tensor, Tensor]) -> None:
    """Read the bytes of what is added: ``x + (b - p) * s`` is ``(x / s - p + b) * s``."""
    chain: list[PostOp] = []
    for post_op in node.post_ops:
        stored = None if post_op.tensor is None else bytes_of.get(post_op.tensor)
        if stored is None or post_op.algorithm != Binary.ADD or len(chain) > _MOST_POST_OPS:
            chain.append(post_op)
            continue
        assert post_op.tensor is not None
        steps = rounded[post_op.tensor]
        chain.append(PostOp(Eltwise.LINEAR, alpha=1 / steps.step, beta=-float(steps.point)))
        chain.append(PostOp(Binary.ADD, tensor=stored))
        chain.append(PostOp(Eltwise.LINEAR, alpha=steps.step))
    node.post_ops = chain
