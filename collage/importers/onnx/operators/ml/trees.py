"""Ensembles of decision trees: where each row ends is found by an operator of this project."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.backends.relax.trees import packed, tree_ensemble
from collage.importers.onnx.operators.ml.forest import Forest, floats, forest, later_forest
from collage.importers.onnx.operators.ml.tables import labels, rows, transformed
from collage.importers.onnx.operators.node import (
    Array,
    Node,
    Refused,
    const,
    fixed_tensor,
    shape_of,
)

_COMBINED = {
    "SUM": ("sum", np.add, 0.0),
    "AVERAGE": ("sum", np.add, 0.0),
    "MIN": ("min", np.minimum, np.inf),
    "MAX": ("max", np.maximum, -np.inf),
}
"""What combines trees, what the numbers of one leaf, and what changes nothing."""
_LATER_COMBINED = ("AVERAGE", "SUM", "MIN", "MAX")
_LATER_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _table(node: Node) -> tuple[relax.Expr, str]:
    """The rows, and what they are compared in."""
    if node.dtype(0) != "float64":
        return rows(node), "float32"
    x, shape = node.operand(0), node.shape(0)
    return (x if len(shape) == 2 else node.emit(op.reshape(x, [1, *shape]))), "float64"


def _said(
    node: Node, x: relax.Expr, trees: Forest, weights: Array, count: int, how: str
) -> relax.Expr:
    """What all trees say: (rows, count); where nobody says anything, what changes nothing."""
    combined, within, neutral = _COMBINED[how]
    spoken = np.zeros((len(trees.branches.features), count), "bool")
    spoken[trees.leaves, trees.targets] = True
    numbers = np.full(spoken.shape, neutral, weights.dtype)
    within.at(numbers, (trees.leaves, trees.targets), weights)
    if count == 1:
        # Without others a leaf that says nothing says zero.
        numbers[~spoken] = 0
    alone = _alone(trees, spoken)
    values = numbers if alone is None else _of_their_targets(trees, numbers, alone)
    operands = packed(trees.branches, trees.roots, values=values, targets=alone)
    call = tree_ensemble(
        [x, *map(fixed_tensor, operands)],
        count,
        combined=combined,
        compared=trees.branches.compared,
        missing=trees.branches.tracks_missing,
    )
    result = node.emit(call)
    if how == "AVERAGE":
        result = node.emit(op.divide(result, const(len(trees.roots), str(weights.dtype))))
    return result


def _alone(trees: Forest, spoken: Array) -> Array | None:
    """By tree, the one target that its leaves speak of; None where there are more in any."""
    if spoken.shape[1] == 1:
        return np.zeros(len(trees.roots), "int64")
    found = [spoken[leaves].any(0) for leaves in trees.reached()]
    if any(targets.sum() > 1 for targets in found):
        return None
    return np.asarray([int(targets.argmax()) for targets in found])


def _of_their_targets(trees: Forest, numbers: Array, alone: Array) -> Array:
    """By node, the number for the target of its tree."""
    if numbers.shape[1] == 1:
        return numbers[:, 0].copy()
    values = np.zeros(len(numbers), numbers.dtype)
    for leaves, target in zip(trees.reached(), alone, strict=True):
        values[leaves] = numbers[leaves, target]
    return values


def _surely_spoken(trees: Forest, count: int) -> Array:
    """By target, whether some tree speaks of it wherever a row ends."""
    spoken = np.zeros((len(trees.branches.features), count), "bool")
    spoken[trees.leaves, trees.targets] = True
    sure = [spoken[leaves].all(0) for leaves in trees.reached()]
    result: Array = np.any(sure, axis=0)
    return result


def _whether_spoken(node: Node, x: relax.Expr, trees: Forest, count: int) -> relax.Expr:
    """Of each row and target, whether any leaf says something."""
    ones = np.ones_like(trees.weights)
    many = _said(node, x, trees, ones, count, "SUM")
    return node.emit(op.greater(many, const(0.0, str(ones.dtype))))


def _targets(
    node: Node, x: relax.Expr, trees: Forest, count: int, how: str, base: Array
) -> relax.Expr:
    """What a regressor gives, before it is transformed: (rows, count)."""
    emit, dtype = node.emit, str(trees.weights.dtype)
    if count == 1:
        trees = trees.first_said()
    scores = _said(node, x, trees, trees.weights, count, how)
    given = emit(op.add(scores, fixed_tensor(base))) if base.size else scores
    if count > 1 and not _surely_spoken(trees, count).all():
        # A target that no leaf speaks of has no score, and nothing is added to it.
        spoken = _whether_spoken(node, x, trees, count)
        given = emit(op.where(spoken, given, const(0.0, dtype)))
    return given


def _narrow(node: Node, values: relax.Expr, dtype: str) -> relax.Expr:
    """Results are float32, whatever is compared in."""
    return values if dtype == "float32" else node.emit(op.astype(values, "float32"))


def _regressor(node: Node) -> relax.Expr:
    x, dtype = _table(node)
    count, how = node.integer("n_targets", 1), node.text("aggregate_function", "SUM")
    if count == 1 and node.text("post_transform", "NONE") != "NONE":
        raise Refused("a post_transform of one target, which onnxruntime leaves out")
    trees = forest(node, "target", dtype).required(shape_of(x)[1], count)
    base = floats(node, "base_values", dtype)
    return transformed(node, _narrow(node, _targets(node, x, trees, count, how, base), dtype))


def _later(node: Node) -> relax.Expr:
    """``TreeEnsemble``, whose attributes are numbers for words, and whose results have the type of
    its table."""
    x, dtype = _table(node)
    count = node.integer("n_targets", 1)
    how = _LATER_COMBINED[node.integer("aggregate_function", 1)]
    transform = _LATER_TRANSFORMS[node.integer("post_transform", 0)]
    if transform != "NONE":
        raise Refused(f"post_transform {transform} of targets")
    trees = later_forest(node, dtype).required(shape_of(x)[1], count)
    scores = _targets(node, x, trees, count, how, np.zeros(0, dtype))
    given = node.dtype(0)
    return scores if given == dtype else node.emit(op.astype(scores, given))


def _classifier(node: Node) -> relax.Expr:
    x, dtype = _table(node)
    emit, given = node.emit, node.attributes
    count = len(given.get("classlabels_int64s", ()))
    base, used = floats(node, "base_values", dtype), {int(i) for i in given["class_ids"]}
    trees = forest(node, "class", dtype).required(shape_of(x)[1], max(count, 1))

    if count > 2:
        scores = compared = _said(node, x, trees, trees.weights, count, "SUM")
        if base.size:
            scores = compared = emit(op.add(scores, fixed_tensor(base)))
        elif not _surely_spoken(trees, count).all():
            # A class that no leaf speaks of is no candidate, however bad the others are.
            spoken = _whether_spoken(node, x, trees, count)
            compared = emit(op.where(spoken, scores, const(-np.inf, dtype)))
        place = emit(op.argmax(compared, axis=1))
        found = transformed(node, _narrow(node, scores, dtype))
        return relax.Tuple([labels(node, place, "classlabels_int64s"), found])
    if count != 2 or len(used) != 1 or base.size > 1:
        raise Refused("string labels, or two classes with scores of their own")
    (only,) = used
    if only != 0:
        raise Refused("scores of the second of two classes alone")
    score = _said(node, x, trees, trees.weights, 1, "SUM")
    if base.size:
        score = emit(op.add(score, fixed_tensor(base)))
    positive = bool((trees.weights >= 0).all())
    limit = const(0.5 if positive else 0.0, dtype)
    above = emit(op.greater(emit(op.squeeze(score, [1])), limit))
    transform = node.text("post_transform", "NONE")
    if transform == "SOFTMAX":
        raise Refused("a softmax of one score")
    score = _narrow(node, score, dtype)
    if positive and transform == "NONE":
        # What is never negative is a probability.
        both = [emit(op.subtract(const(1.0, "float32"), score)), score]
    else:
        both = [transformed(node, x) for x in (emit(op.negative(score)), score)]
    return relax.Tuple([labels(node, above, "classlabels_int64s"), emit(op.concat(both, axis=1))])


TREES = {
    "TreeEnsemble": _later,
    "TreeEnsembleClassifier": _classifier,
    "TreeEnsembleRegressor": _regressor,
}
