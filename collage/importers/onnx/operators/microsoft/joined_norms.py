"""onnxruntime's normalizations that are joined with what stands before them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import Node, const, shape_of


def _skip_layer_norm(node: Node) -> relax.Expr:
    """Inputs: x, what is added to it, scale, shift, another that is added."""
    total = _sum(node, 4)
    shift = node.operand(3) if node.has(3) else const(np.zeros(node.shape(2)), node.dtype(2))
    epsilon = node.number("epsilon", 1e-12)
    result = op.nn.layer_norm(total, node.operand(2), shift, axes=[-1], epsilon=epsilon)
    return _with_sum(node, node.emit(result), total, epsilon, centred=True)


def _skip_root_mean_square(node: Node) -> relax.Expr:
    """Inputs: x, what is added to it, scale, another that is added."""
    total, epsilon = _sum(node, 3), node.number("epsilon", 1e-12)
    result = node.emit(op.nn.rms_norm(total, node.operand(2), [-1], epsilon))
    return _with_sum(node, result, total, epsilon, centred=False)


def _sum(node: Node, bias: int) -> relax.Expr:
    total = node.emit(op.add(node.operand(0), node.operand(1)))
    return node.emit(op.add(total, node.operand(bias))) if node.has(bias) else total


def _with_sum(
    node: Node, result: relax.Expr, total: relax.Expr, epsilon: float, centred: bool
) -> relax.Expr:
    """The result, the mean, one over the deviation, and the sum that was normalized."""
    if node.outputs == 1:
        return result
    mean, inverse = _statistics(node, total, -1, epsilon, centred)
    return relax.Tuple([result, mean, inverse, total])


def _statistics(
    node: Node, x: relax.Expr, axis: int, epsilon: float, centred: bool
) -> tuple[relax.Expr, relax.Expr]:
    emit = node.emit
    rank = len(shape_of(x))
    axes = list(range(axis % rank, rank))
    wide = emit(op.astype(x, "float32"))
    mean = emit(op.mean(wide, axes, keepdims=True))
    if centred:
        wide = emit(op.subtract(wide, mean))
    square = emit(op.mean(emit(op.multiply(wide, wide)), axes, keepdims=True))
    return mean, emit(op.rsqrt(emit(op.add(square, const(epsilon, "float32")))))


def _root_mean_square(node: Node) -> relax.Expr:
    """As the standard's later ``RMSNormalization``, with one over the deviation."""
    x, epsilon = node.operand(0), node.number("epsilon", 1e-5)
    rank, kind = len(node.shape(0)), node.dtype(1)
    axis = node.integer("axis", -1) % rank
    wide = [node.emit(op.astype(node.operand(i), "float32")) for i in (0, 1)]
    result = node.emit(op.nn.rms_norm(*wide, list(range(axis, rank)), epsilon))
    result = node.emit(op.astype(result, kind))
    if node.outputs == 1:
        return result
    return relax.Tuple([result, _statistics(node, x, axis, epsilon, centred=False)[1]])


def _embeddings(node: Node) -> relax.Expr:
    """Inputs: words, segments, three tables, scale, shift, mask, positions."""
    rows = node.shape(0)[1]
    places = node.operand(8) if node.has(8) else const(np.arange(rows)[None], "int32")

    def looked_up(table: int, numbers: relax.Expr) -> relax.Expr:
        return node.emit(op.take(node.operand(table), numbers, 0))

    return _summed(node, looked_up, places, node.operand(5), node.operand(6))


def _embeddings_of_bytes(node: Node) -> relax.Expr:
    """The tables, the scale and the shift have scales, then zeros, behind the mask."""
    rows = node.shape(0)[1]

    def real(index: int, x: relax.Expr) -> relax.Expr:
        whole = node.emit(op.astype(x, "int32"))
        if node.has(index + 11):
            zero = node.emit(op.astype(node.operand(index + 11), "int32"))
            whole = node.emit(op.subtract(whole, zero))
        whole = node.emit(op.astype(whole, "float32"))
        return node.emit(op.multiply(whole, node.operand(index + 6)))

    def looked_up(table: int, numbers: relax.Expr) -> relax.Expr:
        return real(table, node.emit(op.take(node.operand(table), numbers, 0)))

    scale, shift = (real(index, node.operand(index)) for index in (5, 6))
    return _summed(node, looked_up, const(np.arange(rows)[None], "int32"), scale, shift)


def _summed(
    node: Node,
    looked_up: Callable[[int, relax.Expr], relax.Expr],
    places: relax.Expr,
    scale: relax.Expr,
    shift: relax.Expr,
) -> relax.Expr:
    """Words, positions and segments, normalized; how long sequences are; the sum itself."""
    emit = node.emit
    total = emit(op.add(looked_up(2, node.operand(0)), looked_up(3, places)))
    if node.has(1):
        total = emit(op.add(total, looked_up(4, node.operand(1))))
    epsilon = node.number("epsilon", 1e-12)
    result = emit(op.nn.layer_norm(total, scale, shift, axes=[-1], epsilon=epsilon))
    if node.outputs == 1:
        return result
    lengths = const(np.zeros(node.shape(0)[0]), "int32")
    if node.has(7):
        lengths = emit(op.sum(emit(op.astype(node.operand(7), "int32")), [1]))
    return relax.Tuple([result, lengths, total])


def _group_norm(node: Node) -> relax.Expr:
    """Inputs: x, scale, shift; with SiLU behind it where the activation is 1."""
    return _by_groups(node, node.operand(0))


def _skip_group_norm(node: Node) -> relax.Expr:
    """Inputs: x, scale, shift, what is added to x, a bias; their sum is a result, too."""
    shape, rank = node.shape(0), len(node.shape(0))
    last = node.integer("channels_last", 1)
    view = [shape[0], *[1] * (rank - 2), shape[-1]] if last else [*shape[:2], *[1] * (rank - 2)]
    total = node.operand(0)
    for index in (3, 4):
        if not node.has(index):
            continue
        added, given = node.operand(index), node.shape(index)
        if len(given) == 1:
            added = node.emit(op.reshape(added, [1, *view[1:]]))
        elif len(given) == 2:
            added = node.emit(op.reshape(added, view))
        total = node.emit(op.add(total, added))
    found = _by_groups(node, total)
    return found if node.outputs == 1 else relax.Tuple([node.emit(found), total])


def _by_groups(node: Node, x: relax.Expr) -> relax.Expr:
    rank = len(node.shape(0))
    last = bool(node.integer("channels_last", 1))
    kind = node.dtype(0)
    scale, shift = (
        operand if node.dtype(index) == kind else node.emit(op.astype(operand, kind))
        for index, operand in ((1, node.operand(1)), (2, node.operand(2)))
    )
    # The library operator has channels in front, whatever it is told.
    front = [0, rank - 1, *range(1, rank - 1)]
    placed = node.emit(op.permute_dims(x, front)) if last else x
    found = node.emit(
        op.nn.group_norm(
            *(placed, scale, shift, node.integer("groups", 1), 1, list(range(2, rank))),
            node.number("epsilon", 1e-5),
        )
    )
    if last:
        found = node.emit(op.permute_dims(found, [0, *range(2, rank), 1]))
    return op.nn.silu(found) if node.integer("activation", 0) else found


CONVERTERS = {"SimplifiedLayerNormalization": _root_mean_square}
"""In the standard's domain, where onnxruntime writes it, though the standard has none."""

MICROSOFT = {
    "GroupNorm": _group_norm,
    "SkipGroupNorm": _skip_group_norm,
    "EmbedLayerNormalization": _embeddings,
    "QEmbedLayerNormalization": _embeddings_of_bytes,
    "SimplifiedLayerNormalization": _root_mean_square,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_root_mean_square,
}
