"""Ensembles of trees as ONNX's attributes have them, read into nodes that compare in one way.

All comparisons become ``<=`` and ``<``: what is left over goes the other way, and whether a feature
is one of several numbers is asked of one after another, twice each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import numpy_helper

from collage.backends.relax.trees import Branches
from collage.importers.onnx.operators.node import Array, Node, Refused

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""In the order of their numbers."""

_TURNED = {"GT": False, "GTE": True}
"""Those that are another comparison with its ends exchanged, and whether that one is strict."""


@dataclass(frozen=True)
class Forest:
    """All trees of a node.

    Attributes
    ----------
    branches : Branches
        Their nodes.
    roots : ndarray
        A node for each tree.
    leaves, targets, weights : ndarray
        What leaves say, one entry each: the leaf, of what it speaks, and the number.
    """

    branches: Branches
    roots: Array
    leaves: Array
    targets: Array
    weights: Array

    def reached(self) -> list[Array]:
        """By tree, the leaves that it has."""
        below, above, is_leaf = self.branches.below, self.branches.above, self.branches.leaves
        found = []
        for root in self.roots:
            at, leaves = np.array([root]), []
            while at.size:
                leaves.append(at[is_leaf[at]])
                at = at[~is_leaf[at]]
                at = np.unique(np.concatenate([below[at], above[at]]))
            found.append(np.unique(np.concatenate(leaves)))
        return found

    def first_said(self) -> Forest:
        """Itself with the first number of each leaf alone, which is all that onnxruntime reads
        where there is one target: scikit-learn's exporter writes places of leaves several times."""
        _, first = np.unique(self.leaves, return_index=True)
        first.sort()
        said = (self.leaves[first], self.targets[first], self.weights[first])
        return Forest(self.branches, self.roots, *said)

    def required(self, features: int, targets: int) -> Forest:
        """Itself, where it is made of trees that look at what is there.

        Parameters
        ----------
        features : int
            Columns of the table.
        targets : int
            Of what leaves may speak.

        Returns
        -------
        Forest
            Walks down it end.

        Raises
        ------
        Refused
            When they would not, or would look beyond the table.
        """
        below, above, is_leaf = self.branches.below, self.branches.above, self.branches.leaves
        at = np.unique(self.roots)
        for _ in range(below.size + 1):
            at = at[~is_leaf[at]]
            if not at.size:
                break
            at = np.unique(np.concatenate([below[at], above[at]]))
        else:
            raise Refused("its nodes lead in a circle")
        for what, places, most in (
            ("feature", self.branches.features[~is_leaf], features),
            ("target", self.targets, targets),
        ):
            if places.size and not 0 <= places.min() <= places.max() < most:
                worst = places.min() if places.min() < 0 else places.max()
                raise Refused(f"it names {what} {worst}, and there are {most}")
        return self


def floats(node: Node, name: str, dtype: str) -> Array:
    """An attribute that is a list of numbers, or a tensor for those of more digits.

    Parameters
    ----------
    node : Node
        Whose attribute it is.
    name : str
        The attribute's, as the list is called.
    dtype : str
        Of the result.

    Returns
    -------
    ndarray
        Of one axis; empty without the attribute.
    """
    given = node.attributes.get(f"{name}_as_tensor", node.attributes.get(name, ()))
    # Lists are of float32, whatever they are written in here.
    exact = numpy_helper.to_array(given) if hasattr(given, "dims") else np.float32(given)
    found: Array = exact.reshape(-1).astype(dtype)
    return found


def forest(node: Node, what: str, dtype: str) -> Forest:
    """The trees of a classifier or a regressor.

    Parameters
    ----------
    node : Node
        Has the attributes.
    what : str
        How those begin that say what leaves give: ``class`` or ``target``.
    dtype : str
        In which features are compared.

    Returns
    -------
    Forest
        Nodes have their places among the attributes' as numbers; what has been added is behind.

    Raises
    ------
    Refused
        When trees are not as the standard has them.
    """
    given = node.attributes
    trees = np.asarray(given["nodes_treeids"], "int64")
    names = zip(trees.tolist(), map(int, given["nodes_nodeids"]), strict=True)
    numbers = {name: place for place, name in enumerate(names)}
    modes = [
        (mode.decode() if isinstance(mode, bytes) else str(mode)).removeprefix("BRANCH_")
        for mode in given["nodes_modes"]
    ]
    is_leaf = np.asarray([mode == "LEAF" for mode in modes])

    def towards(attribute: str) -> Array:
        ends = zip(trees.tolist(), map(int, given[attribute]), is_leaf, strict=True)
        found = [i if leaf else _known(numbers, t, n) for i, (t, n, leaf) in enumerate(ends)]
        return np.asarray(found, "int64")

    count = len(modes)
    branches = _compared(
        modes,
        np.where(is_leaf, 0, np.asarray(given["nodes_featureids"], "int64")),
        floats(node, "nodes_values", dtype),
        (towards("nodes_truenodeids"), towards("nodes_falsenodeids")),
        np.asarray(given.get("nodes_missing_value_tracks_true") or [0] * count, "bool"),
        members=None,
    )
    ends = zip(given[f"{what}_treeids"], given[f"{what}_nodeids"], strict=True)
    return Forest(
        branches,
        roots=np.sort(np.unique(trees, return_index=True)[1]),
        leaves=np.asarray([_known(numbers, int(t), int(n)) for t, n in ends], "int64"),
        targets=np.asarray(given[f"{what}_ids"], "int64"),
        weights=floats(node, f"{what}_weights", dtype),
    )


def _known(numbers: dict[tuple[int, int], int], tree: int, name: int) -> int:
    if (tree, name) not in numbers:
        raise Refused(f"tree {tree} has no node {name}")
    return numbers[tree, name]


def later_forest(node: Node, dtype: str) -> Forest:
    """The trees of ``TreeEnsemble``, whose leaves stand in lists of their own.

    Parameters
    ----------
    node : Node
        Has the attributes.
    dtype : str
        In which features are compared.

    Returns
    -------
    Forest
        Leaves have their numbers behind those of the other nodes.

    Raises
    ------
    Refused
        When it compares in a way that nobody knows.
    """
    given = node.attributes
    codes = numpy_helper.to_array(given["nodes_modes"]).reshape(-1).tolist()
    if any(code >= len(_MODES) for code in codes):
        raise Refused(f"a comparison {max(codes)}, which the standard does not have")
    targets = np.asarray(given["leaf_targetids"], "int64")
    inner, count = len(codes), len(targets)

    def ends(kind: str) -> Array:
        to = np.asarray(given[f"nodes_{kind}nodeids"], "int64")
        leads_to_leaf = np.asarray(given[f"nodes_{kind}leafs"], "bool")
        return np.concatenate([np.where(leads_to_leaf, to + inner, to), inner + np.arange(count)])

    def padded(values: Array) -> Array:
        return np.concatenate([values, np.zeros(count, values.dtype)])

    features = padded(np.asarray(given["nodes_featureids"], "int64"))
    missing = given.get("nodes_missing_value_tracks_true") or [0] * inner
    branches = _compared(
        [_MODES[code] for code in codes] + ["LEAF"] * count,
        features,
        padded(floats(node, "nodes_splits", dtype)),
        (ends("true"), ends("false")),
        padded(np.asarray(missing, "bool")),
        members=_sets(floats(node, "membership_values", dtype)),
    )
    return Forest(
        branches,
        # A tree of one leaf is a node whose both ends are that leaf.
        roots=np.asarray(given["tree_roots"], "int64"),
        leaves=inner + np.arange(count),
        targets=targets,
        weights=floats(node, "leaf_weights", dtype),
    )


def _sets(values: Array) -> list[Array]:
    """What is not a number ends a set."""
    ends = np.flatnonzero(np.isnan(values))
    return [part[~np.isnan(part)] for part in np.split(values, ends + 1)][: len(ends)]


def _compared(
    modes: Sequence[str],
    features: Array,
    thresholds: Array,
    ends: tuple[Array, Array],
    missing: Array,
    members: list[Array] | None,
) -> Branches:
    """Nodes that compare in many ways as nodes that compare with ``<=`` and ``<``."""
    kinds, (below, above) = np.asarray(modes), ends
    unknown = set(modes) - {*_MODES, "LEAF"} - ({"MEMBER"} if members is None else set())
    if unknown:
        raise Refused(f"the comparison {', '.join(sorted(unknown))}")
    turned = np.isin(kinds, list(_TURNED))
    below, above = np.where(turned, above, below), np.where(turned, below, above)
    # Nothing is greater than what is not a number, so that one goes where it went.
    missing = np.where(turned, ~missing, missing) & (kinds != "LEAF")
    strict = np.isin(kinds, ["LT", "GTE"])
    nodes = _Growing(
        [features, thresholds, below.copy(), above.copy(), missing.copy(), strict.copy()]
    )
    sets = iter(members or ())
    for place in np.flatnonzero(np.isin(kinds, ["EQ", "NEQ", "MEMBER"])):
        kind = kinds[place]
        wanted = next(sets) if kind == "MEMBER" else thresholds[place : place + 1]
        nodes.ask(int(place), np.unique(wanted), is_other=kind == "NEQ")
    return nodes.finished()


class _Growing:
    """Nodes to which others are added: columns as :class:`Branches` has them."""

    def __init__(self, columns: list[Array]) -> None:
        self._columns = columns
        self._added: list[tuple[Any, ...]] = []

    def ask(self, place: int, wanted: Array, *, is_other: bool) -> None:
        """Whether a node's feature is one of some numbers, which ascend.

        Parameters
        ----------
        place : int
            Of the node, whose ends are taken for the answers.
        wanted : ndarray
            The numbers.
        is_other : bool
            Whether the question is the opposite.
        """
        features, _, below, above, missing, _ = self._columns
        yes, no = int(below[place]), int(above[place])
        tracked = bool(missing[place])
        if is_other:
            # What is not a number is another one than any.
            yes, no, tracked = no, yes, False
        if not wanted.size:
            raise Refused("a set of no numbers")
        at = place
        for index, number in enumerate(wanted):
            smaller = len(features) + len(self._added)
            following = no if index == wanted.size - 1 else smaller + 1
            row = (features[place], number, smaller, following, tracked and not index, False)
            if at == place:
                for column, value in zip(self._columns, row, strict=True):
                    column[place] = value
            else:
                self._added[at - len(features)] = row
            self._added.append((features[place], number, no, yes, False, True))
            if following != no:
                # Its place is kept; the next turn fills it.
                self._added.append(row)
                at = following

    def finished(self) -> Branches:
        """All of them."""
        if not self._added:
            return Branches(*self._columns)
        added = zip(*self._added, strict=True)
        return Branches(
            *(
                np.concatenate([column, np.asarray(values, column.dtype)])
                for column, values in zip(self._columns, added, strict=True)
            )
        )
