"""Runs of multiplications and additions by constants (batch norms) become one of each."""

from __future__ import annotations

import numpy as np

from collage.backends.onednn.graph import Binary, Eltwise, Graph, Node, OpKind, PostOp, Tensor

Affine = tuple[np.ndarray, np.ndarray]
"""Scale and shift that broadcast to the result."""


def merge_affine(graph: Graph) -> None:
    """Shorten each kernel's chain: ``((x * a + b) * c + d)`` is ``x * (a c) + (b c + d)``."""
    for node in graph.nodes:
        if node.kind is OpKind.BINARY:
            base = PostOp(node.ints[0], tensor=node.inputs[1])
            chain = _merged([base, *node.post_ops], node)
            # The node itself has to stay one with two operands.
            if chain and chain[0].tensor is not None:
                node.ints, node.inputs[1] = [chain[0].algorithm], chain[0].tensor
                node.post_ops = chain[1:]
        elif node.post_ops:
            node.post_ops = _merged(node.post_ops, node)


def _merged(chain: list[PostOp], node: Node) -> list[PostOp]:
    result: list[PostOp] = []
    run: list[PostOp] = []
    total: Affine | None = None
    for post_op in [*chain, None]:
        step = None if post_op is None else _affine(post_op, node.output.shape)
        if post_op is not None and step is not None:
            run.append(post_op)
            total = step if total is None else (total[0] * step[0], total[1] * step[0] + step[1])
            continue
        if total is not None:
            short = _as_post_ops(total)
            result += short if len(short) < len(run) else run
            run, total = [], None
        if post_op is not None:
            result.append(post_op)
    return result


def _affine(post_op: PostOp, shape: tuple[int, ...]) -> Affine | None:
    """A step's scale and shift, in double precision; None when it is not affine or not constant."""
    one, zero = np.float64(1.0), np.float64(0.0)
    if post_op.tensor is None:
        if post_op.algorithm != Eltwise.LINEAR:
            return None
        return np.asarray(post_op.alpha, np.float64), np.asarray(post_op.beta, np.float64)
    if post_op.tensor.array is None or post_op.tensor.shape == shape:
        return None
    value = post_op.tensor.array.astype(np.float64)
    match post_op.algorithm:
        case Binary.ADD:
            return np.asarray(one), value
        case Binary.SUB:
            return np.asarray(one), -value
        case Binary.MUL:
            return value, np.asarray(zero)
    return None


def _as_post_ops(total: Affine) -> list[PostOp]:
    scale, shift = total
    if scale.size == 1 and shift.size == 1:
        return [PostOp(Eltwise.LINEAR, alpha=scale.item(), beta=shift.item())]
    steps = []
    if np.any(scale != 1.0):
        steps.append(_constant_step(Binary.MUL, scale, shift.ndim))
    if np.any(shift != 0.0):
        steps.append(_constant_step(Binary.ADD, shift, scale.ndim))
    return steps


def _constant_step(algorithm: Binary, value: np.ndarray, rank: int) -> PostOp:
    if value.size == 1:
        linear = (value.item(), 0.0) if algorithm is Binary.MUL else (1.0, value.item())
        return PostOp(Eltwise.LINEAR, alpha=linear[0], beta=linear[1])
    value = value.reshape((1,) * (rank - value.ndim) + value.shape)
    return PostOp(algorithm, tensor=Tensor.constant(value))
