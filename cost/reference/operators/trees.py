"""Ensembles of decision trees: all walks take a step, until nobody moves."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage.backends.relax.trees import NAME, Ensemble
from collage.backends.relax.trees.operator import LINK, MISSING, STRICT
from collage.cost.reference.values import Array, OperatorTable, Value


def _trees(call: relax.Call, args: list[Value]) -> Value:
    one = Ensemble.of(call)
    x, words, trees, *leaves = args
    features, thresholds, links, others = words.reshape(-1, 4).T
    kind = np.dtype(one.threshold)
    thresholds = np.ascontiguousarray(thresholds).view(kind)
    rows = np.arange(one.rows)[:, None]
    at = np.broadcast_to(trees[:, 0] // LINK, (one.rows, one.trees))
    while True:
        value, bits = x[rows, features[at]], links[at]
        is_strict = bits & STRICT != 0 if one.compared == "both" else one.compared == "lt"
        holds = np.where(is_strict, value < thresholds[at], value <= thresholds[at])
        holds |= np.isnan(value) & (bits & MISSING != 0)
        following = np.where(holds, others[at], bits) // LINK
        if (following == at).all():
            break
        at = following
    return _combined(one, others[at], trees[:, 1], leaves).astype(x.dtype)


def _combined(one: Ensemble, said: Array, targets: Array, leaves: list[Value]) -> Array:
    """What all leaves say, by target."""
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[one.combined]
    result: Array
    if leaves:
        result = combine.reduce(leaves[0][said], axis=1)
        return result
    values = np.ascontiguousarray(said).view(one.threshold).astype("float64")
    result = np.full((one.rows, one.targets), one.neutral)
    for tree, target in enumerate(targets):
        result[:, target] = combine(result[:, target], values[:, tree])
    return result


TREES: OperatorTable = {NAME: _trees}
