"""Support vector machines, which compare each row of a table with rows that they were fitted to."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.ml.coupled import coupled
from collage.importers.onnx.operators.ml.tables import labels, rows, transformed, vector
from collage.importers.onnx.operators.node import (
    Array,
    Node,
    Refused,
    const,
    fixed_tensor,
)

_LEAST = 1e-7
"""onnxruntime keeps probabilities of pairs this far from 0 and 1."""


def _likeness(node: Node, supports: Array) -> relax.Expr:
    """Of each row to each support: (rows, supports)."""
    emit, kind = node.emit, node.text("kernel_type", "LINEAR")
    gamma, offset, degree = (*vector(node, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    x = rows(node)
    dots = emit(op.matmul(x, fixed_tensor(supports.T.copy())))
    if kind == "LINEAR":
        return dots
    if kind == "RBF":
        own = emit(op.sum(emit(op.multiply(x, x)), 1, keepdims=True))
        theirs = fixed_tensor((supports * supports).sum(1)[None])
        both = emit(op.add(own, theirs))
        apart = emit(op.subtract(both, emit(op.multiply(dots, const(2.0, "float32")))))
        apart = emit(op.maximum(apart, const(0.0, "float32")))
        return emit(op.exp(emit(op.multiply(apart, const(-gamma, "float32")))))
    scaled = emit(op.multiply(dots, const(gamma, "float32")))
    scaled = emit(op.add(scaled, const(offset, "float32")))
    if kind == "SIGMOID":
        return emit(op.tanh(scaled))
    if kind == "POLY" and degree == int(degree) and degree >= 1:
        power = scaled
        for _ in range(int(degree) - 1):
            power = emit(op.multiply(power, scaled))
        return power
    raise Refused(f"the kernel '{kind}' of degree {degree:g}")


def _supports(node: Node) -> Array:
    features = node.shape(0)[-1]
    return vector(node, "support_vectors").reshape(-1, features)


def _regressor(node: Node) -> relax.Expr:
    """One number a row; without supports the coefficients are a row of weights."""
    emit = node.emit
    weights = vector(node, "coefficients").reshape(-1, 1)
    alike = _likeness(node, _supports(node)) if node.integer("n_supports", 0) else rows(node)
    rho = vector(node, "rho")
    total = emit(op.add(emit(op.matmul(alike, fixed_tensor(weights))), fixed_tensor(rho[:1])))
    if node.integer("one_class", 0):
        inside = emit(op.greater(total, const(0.0, "float32")))
        return emit(op.where(inside, const(1.0, "float32"), const(-1.0, "float32")))
    return transformed(node, total)


def _classifier(node: Node) -> relax.Expr:
    """Each pair of classes has a score; classes are chosen by the pairs that they win."""
    counts = node.integers("vectors_per_class", ())
    classes = len(counts)
    if not counts:
        raise Refused("no support vectors")
    scores = _scores_of_pairs(node, counts)
    chosen = labels(node, _winners(node, scores, classes), "classlabels_ints")
    if "prob_a" in node.attributes:
        scores = coupled(node, _probabilities(node, scores), classes)
    elif classes == 2:
        if node.text("post_transform", "NONE") == "SOFTMAX":
            raise Refused("a softmax of one score")
        scores = node.emit(op.concat([node.emit(op.negative(scores)), scores], 1))
    return relax.Tuple([chosen, transformed(node, scores)])


def _winners(node: Node, scores: relax.Expr, classes: int) -> relax.Expr:
    emit = node.emit
    pairs = list(combinations(range(classes), 2))
    won = np.zeros((len(pairs), classes), "float32")
    lost = won.copy()
    for pair, (first, second) in enumerate(pairs):
        won[pair, first] = lost[pair, second] = 1
    ahead = emit(op.astype(emit(op.greater(scores, const(0.0, "float32"))), "float32"))
    behind = emit(op.subtract(const(1.0, "float32"), ahead))
    votes = emit(op.matmul(ahead, fixed_tensor(won)))
    votes = emit(op.add(votes, emit(op.matmul(behind, fixed_tensor(lost)))))
    return emit(op.argmax(votes, axis=1))


def _scores_of_pairs(node: Node, counts: list[int]) -> relax.Expr:
    """(rows, pairs): each support of either class has a coefficient for the other class."""
    classes, supports = len(counts), _supports(node)
    given = vector(node, "coefficients").reshape(classes - 1, -1)
    ends = np.cumsum([0, *counts])
    columns = []
    for first, second in combinations(range(classes), 2):
        column = np.zeros(len(supports), "float32")
        for own, row in ((first, second - 1), (second, first)):
            part = slice(ends[own], ends[own + 1])
            column[part] = given[row, part]
        columns.append(column)
    weights, rho = np.stack(columns, 1), vector(node, "rho")
    alike = _likeness(node, supports)
    return node.emit(op.add(node.emit(op.matmul(alike, fixed_tensor(weights))), fixed_tensor(rho)))


def _probabilities(node: Node, scores: relax.Expr) -> relax.Expr:
    """Of the first class of each pair, by a sigmoid that was fitted to the scores."""
    emit = node.emit
    slopes, offsets = (fixed_tensor(-vector(node, name)) for name in ("prob_a", "prob_b"))
    first = emit(op.sigmoid(emit(op.add(emit(op.multiply(scores, slopes)), offsets))))
    return emit(op.clip(first, _LEAST, 1 - _LEAST))


SUPPORTS = {"SVMClassifier": _classifier, "SVMRegressor": _regressor}
