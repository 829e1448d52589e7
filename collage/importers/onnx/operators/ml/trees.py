"""Ensembles of decision trees: every row walks down all trees at once, a level a step.

A node is a row of small tables (which feature, which threshold, where to go), looked up by number;
a leaf leads to itself, so that all walks are as long as the longest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.ml.tables import labels, rows, transformed, vector
from collage.importers.onnx.operators.node import (
    Array,
    Node,
    Refused,
    const,
    fixed_tensor,
    shape_of,
)

_COMPARE = {
    "BRANCH_LEQ": op.less_equal,
    "BRANCH_LT": op.less,
    "BRANCH_GTE": op.greater_equal,
    "BRANCH_GT": op.greater,
    "BRANCH_EQ": op.equal,
    "BRANCH_NEQ": op.not_equal,
}


@dataclass(frozen=True)
class _Trees:
    """All nodes of all trees, numbered in one row.

    Attributes
    ----------
    features, thresholds, below, above, missing : numpy.ndarray
        By node: what is compared with what, where to go when it holds and when not, and whether
        what is not a number counts as holding.
    roots : numpy.ndarray
        A node for each tree.
    depth : int
        Of the deepest tree.
    mode : str
        How all of them compare.
    numbers : dict
        By tree and node, as the attributes name them.
    """

    features: Array
    thresholds: Array
    below: Array
    above: Array
    missing: Array
    roots: Array
    depth: int
    mode: str
    numbers: dict[tuple[int, int], int]


def _trees(node: Node) -> _Trees:
    given = node.attributes
    trees = [int(t) for t in given["nodes_treeids"]]
    names = [(t, int(n)) for t, n in zip(trees, given["nodes_nodeids"], strict=True)]
    numbers = {name: i for i, name in enumerate(names)}
    modes = [m.decode() if isinstance(m, bytes) else str(m) for m in given["nodes_modes"]]
    inner = [mode != "LEAF" for mode in modes]
    kinds = {mode for mode in modes if mode != "LEAF"}
    if len(kinds) > 1:
        raise Refused(f"nodes that compare in different ways: {', '.join(sorted(kinds))}")

    def towards(attribute: str) -> Array:
        ends = zip(trees, given[attribute], inner, strict=True)
        found = [numbers[t, int(n)] if is_inner else i for i, (t, n, is_inner) in enumerate(ends)]
        return np.asarray(found, "int32")

    below, above = towards("nodes_truenodeids"), towards("nodes_falsenodeids")
    count = len(names)
    first: dict[int, int] = {}
    for i, tree in enumerate(trees):
        first.setdefault(tree, i)
    roots = np.asarray(list(first.values()), "int32")
    tracks = given.get("nodes_missing_value_tracks_true") or [0] * count
    return _Trees(
        features=np.where(inner, np.asarray(given["nodes_featureids"], "int64"), 0),
        thresholds=np.asarray(given["nodes_values"], "float32"),
        below=below,
        above=above,
        missing=np.asarray(tracks, "bool"),
        roots=roots,
        depth=_depth(roots, below, above),
        mode=next(iter(kinds), "BRANCH_LEQ"),
        numbers=numbers,
    )


def _depth(roots: Array, below: Array, above: Array) -> int:
    """How many steps it takes until all nodes that can be reached are leaves."""
    at, depth = np.unique(roots), 0
    while not (below[at] == at).all():
        at, depth = np.unique(np.concatenate([below[at], above[at]])), depth + 1
        if depth > below.size:
            raise Refused("its nodes lead in a circle")
    return depth


def _leaves(node: Node, trees: _Trees) -> relax.Expr:
    """The leaf that each row ends at in each tree: (rows, trees)."""
    emit, x = node.emit, rows(node)
    count, width = shape_of(x)
    flat = emit(op.reshape(x, [count * width]))
    begins = fixed_tensor(np.arange(count, dtype="int64").reshape(-1, 1) * width)
    at = fixed_tensor(np.broadcast_to(trees.roots, (count, trees.roots.size)).copy())

    def lookup(table: Array, at: relax.Expr) -> relax.Expr:
        return emit(op.take(fixed_tensor(table), at, axis=0))

    for _ in range(trees.depth):
        place = emit(op.add(lookup(trees.features, at), begins))
        value = emit(op.take(flat, place, axis=0))
        holds = emit(_COMPARE[trees.mode](value, lookup(trees.thresholds, at)))
        if trees.missing.any():
            lost = emit(op.logical_and(emit(op.isnan(value)), lookup(trees.missing, at)))
            holds = emit(op.logical_or(holds, lost))
        at = emit(op.where(holds, lookup(trees.below, at), lookup(trees.above, at)))
    return at


def _scores(
    node: Node,
    trees: _Trees,
    leaves: relax.Expr,
    what: str,
    count: int,
    *,
    only_whether: bool = False,
) -> relax.Expr:
    """What the leaves give to each target or class, over all trees: (rows, count).

    Parameters
    ----------
    node, trees, leaves
        And where each row ends.
    what : str
        How the attributes that say so begin.
    count : int
        Targets or classes.
    only_whether : bool
        How many leaves give anything, instead of what.
    """
    given = node.attributes
    ids = zip(given[f"{what}_treeids"], given[f"{what}_nodeids"], strict=True)
    table = np.zeros((len(trees.numbers), count), "float32")
    for (tree, leaf), target, weight in zip(
        ids, given[f"{what}_ids"], given[f"{what}_weights"], strict=True
    ):
        table[trees.numbers[int(tree), int(leaf)], int(target)] += 1 if only_whether else weight
    found = node.emit(op.take(fixed_tensor(table), leaves, axis=0))
    how = node.text("aggregate_function", "SUM")
    combine = {"SUM": op.sum, "AVERAGE": op.mean}.get(how)
    if combine is None:
        raise Refused(f"the {how.lower()} of what trees give")
    return node.emit(combine(found, [1]))


def _regressor(node: Node) -> relax.Expr:
    _require_float32(node)
    trees, count, emit = _trees(node), node.integer("n_targets", 1), node.emit
    if count == 1 and node.text("post_transform", "NONE") != "NONE":
        raise Refused("a post_transform of one target, which onnxruntime leaves out")
    leaves = _leaves(node, trees)
    scores = _scores(node, trees, leaves, "target", count)
    base = vector(node, "base_values")
    if base.size:
        given = emit(op.add(scores, fixed_tensor(base)))
        # A target that no leaf speaks of has no score, and nothing is added to it.
        spoken = _scores(node, trees, leaves, "target", count, only_whether=True)
        scores = emit(op.where(emit(op.greater(spoken, const(0.0, "float32"))), given, scores))
    return transformed(node, scores)


def _classifier(node: Node) -> relax.Expr:
    _require_float32(node)
    emit, given = node.emit, node.attributes
    count = len(given.get("classlabels_int64s", ()))
    base, used = vector(node, "base_values"), {int(i) for i in given["class_ids"]}
    trees = _trees(node)
    leaves = _leaves(node, trees)
    if count > 2:
        scores = compared = _scores(node, trees, leaves, "class", count)
        if base.size:
            scores = compared = emit(op.add(scores, fixed_tensor(base)))
        else:
            # A class that no leaf speaks of is no candidate, however bad the others are.
            spoken = _scores(node, trees, leaves, "class", count, only_whether=True)
            spoken = emit(op.greater(spoken, const(0.0, "float32")))
            compared = emit(op.where(spoken, scores, const(-np.inf, "float32")))
        place = emit(op.argmax(compared, axis=1))
        return relax.Tuple([labels(node, place, "classlabels_int64s"), transformed(node, scores)])
    if count != 2 or len(used) != 1 or base.size > 1:
        raise Refused("string labels, or two classes with scores of their own")
    (only,) = used
    if only != 0:
        raise Refused("scores of the second of two classes alone")
    one = _scores(node, trees, leaves, "class", 2)
    score = emit(op.strided_slice(one, [1], [0], [1]))
    if base.size:
        score = emit(op.add(score, fixed_tensor(base)))
    positive = bool((vector(node, "class_weights") >= 0).all())
    limit = const(0.5 if positive else 0.0, "float32")
    above = emit(op.greater(emit(op.squeeze(score, [1])), limit))
    transform = node.text("post_transform", "NONE")
    if transform == "SOFTMAX":
        raise Refused("a softmax of one score")
    if positive and transform == "NONE":
        # What is never negative is a probability.
        both = [emit(op.subtract(const(1.0, "float32"), score)), score]
    else:
        both = [transformed(node, x) for x in (emit(op.negative(score)), score)]
    return relax.Tuple([labels(node, above, "classlabels_int64s"), emit(op.concat(both, axis=1))])


def _require_float32(node: Node) -> None:
    if node.dtype(0) == "float64":
        raise Refused("float64, in which thresholds are other numbers")


TREES = {"TreeEnsembleClassifier": _classifier, "TreeEnsembleRegressor": _regressor}
