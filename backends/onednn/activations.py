"""Functions of single elements that a region's graph has written out as chains of others."""

from __future__ import annotations

from collage.backends.onednn.graph import Binary, Eltwise, Node, OpKind, Tensor
from collage.backends.onednn.rewriter import Rewriter, Rule

_TOLERANCE = 1e-6
"""Relative difference at which two constants of a chain count as equal (they are float32)."""


def _equal(a: float, b: float) -> bool:
    return abs(a - b) <= _TOLERANCE * max(abs(a), abs(b), 1e-30)


def _is_eltwise(node: Node, algorithm: Eltwise) -> bool:
    return node.kind is OpKind.ELTWISE and node.ints[0] == algorithm


def _set_eltwise(node: Node, x: Tensor, algorithm: Eltwise, alpha: float, beta: float) -> bool:
    node.kind, node.inputs = OpKind.ELTWISE, [x]
    node.ints, node.floats = [algorithm], [alpha, beta]
    return True


def _merge_linear(rewriter: Rewriter, node: Node) -> bool:
    """``c * (a * x + b) + d`` is linear too."""
    if not _is_eltwise(node, Eltwise.LINEAR):
        return False
    inner = rewriter.eltwise(node.inputs[0], Eltwise.LINEAR)
    if inner is None:
        return False
    (a, b), (c, d) = inner.floats, node.floats
    return _set_eltwise(node, inner.inputs[0], Eltwise.LINEAR, a * c, b * c + d)


def _hard_sigmoid(rewriter: Rewriter, node: Node) -> bool:
    """``clip(a * x + b, 0, 1)``, and ``clip(a * x + b, 0, h) / h``."""
    if _is_eltwise(node, Eltwise.CLIP):
        inner = rewriter.eltwise(node.inputs[0], Eltwise.LINEAR)
        if inner is None or node.floats != [0.0, 1.0]:
            return False
        return _set_eltwise(node, inner.inputs[0], Eltwise.HARD_SIGMOID, *inner.floats)
    if not _is_eltwise(node, Eltwise.LINEAR) or node.floats[1] != 0.0:
        return False
    clip = rewriter.eltwise(node.inputs[0], Eltwise.CLIP)
    if clip is None or clip.floats[0] != 0.0 or not _equal(node.floats[0] * clip.floats[1], 1.0):
        return False
    inner = rewriter.eltwise(clip.inputs[0], Eltwise.LINEAR)
    if inner is None:
        return False
    height = clip.floats[1]
    a, b = inner.floats
    return _set_eltwise(node, inner.inputs[0], Eltwise.HARD_SIGMOID, a / height, b / height)


def _gate(rewriter: Rewriter, node: Node) -> bool:
    """``x * logistic(a * x)``, ``x * hard_sigmoid(x)`` and ``x * tanh(softplus(x))``."""
    if node.kind is not OpKind.BINARY or node.ints[0] != Binary.MUL:
        return False
    for x, gate in (node.inputs, node.inputs[::-1]):
        logistic = rewriter.eltwise(gate, Eltwise.LOGISTIC)
        if logistic is not None and logistic.inputs[0] is x:
            return _set_eltwise(node, x, Eltwise.SWISH, 1.0, 0.0)
        scaled = rewriter.eltwise(logistic.inputs[0], Eltwise.LINEAR) if logistic else None
        if scaled is not None and scaled.inputs[0] is x and scaled.floats[1] == 0.0:
            return _set_eltwise(node, x, Eltwise.SWISH, scaled.floats[0], 0.0)
        tanh = rewriter.eltwise(gate, Eltwise.TANH)
        soft = rewriter.eltwise(tanh.inputs[0], Eltwise.SOFT_RELU) if tanh else None
        if soft is not None and soft.inputs[0] is x and soft.floats[0] == 1.0:
            return _set_eltwise(node, x, Eltwise.MISH, 0.0, 0.0)
        hard = rewriter.eltwise(gate, Eltwise.HARD_SIGMOID)
        if hard is not None and hard.inputs[0] is x:
            return _set_eltwise(node, x, Eltwise.HARD_SWISH, *hard.floats)
    return False


def _elu(rewriter: Rewriter, node: Node) -> bool:
    """``relu(x) - a * relu(1 - exp(x))``, as importers write it."""
    if node.kind is not OpKind.BINARY or node.ints[0] != Binary.ADD:
        return False
    for above, below in (node.inputs, node.inputs[::-1]):
        positive = rewriter.eltwise(above, Eltwise.RELU)
        scaled = rewriter.eltwise(below, Eltwise.LINEAR)
        if positive is None or positive.floats[0] != 0.0 or scaled is None:
            continue
        negative = rewriter.eltwise(scaled.inputs[0], Eltwise.RELU)
        if negative is None or negative.floats[0] != 0.0 or scaled.floats[1] != 0.0:
            continue
        rest = rewriter.eltwise(negative.inputs[0], Eltwise.LINEAR)
        power = rewriter.eltwise(rest.inputs[0], Eltwise.EXP) if rest is not None else None
        if rest is None or power is None or rest.floats != [-1.0, 1.0]:
            continue
        if power.inputs[0] is positive.inputs[0]:
            return _set_eltwise(node, power.inputs[0], Eltwise.ELU, -scaled.floats[0], 0.0)
    return False


RULES: tuple[Rule, ...] = (_merge_linear, _hard_sigmoid, _gate, _elu)
"""In the order in which they are tried."""
