"""Nodes of decision trees laid out as the operator reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from collage.backends.relax.trees.operator import LINK, MISSING, STRICT


@dataclass(frozen=True)
class Branches:
    """All nodes of all trees, numbered in one row.

    Attributes
    ----------
    features, thresholds : numpy.ndarray
        By node: what is compared with what. Thresholds are of the type of the table.
    below, above : numpy.ndarray
        Where to go on when it holds and when not; leaves lead to themselves.
    missing, strict : numpy.ndarray
        Whether what is not a number counts as holding, and whether what is equal does not.

    Examples
    --------
    >>> nodes = Branches(*np.array([[3, 0, 0], [0, 0, 0], [2, 1, 2], [1, 1, 2]]))
    >>> nodes.leaves.tolist(), nodes.compared
    ([False, True, True], 'leq')
    """

    features: np.ndarray
    thresholds: np.ndarray
    below: np.ndarray
    above: np.ndarray
    missing: np.ndarray = field(default_factory=lambda: np.zeros((), bool))
    strict: np.ndarray = field(default_factory=lambda: np.zeros((), bool))

    @property
    def leaves(self) -> np.ndarray:
        """Which of them are leaves."""
        own = np.arange(len(self.features))
        found: np.ndarray = (self.below == own) & (self.above == own)
        return found

    @property
    def compared(self) -> str:
        """How those that are no leaves compare, as the operator names it."""
        strict = np.broadcast_to(self.strict, self.features.shape)[~self.leaves]
        return "both" if strict.any() and not strict.all() else "lt" if strict.any() else "leq"

    @property
    def tracks_missing(self) -> bool:
        """Whether what is not a number holds anywhere."""
        return bool((np.broadcast_to(self.missing, self.features.shape) & ~self.leaves).any())


def packed(
    branches: Branches,
    roots: np.ndarray,
    *,
    values: np.ndarray,
    targets: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    """Nodes in the order in which walks meet them, each in one piece.

    Parameters
    ----------
    branches : Branches
        The nodes.
    roots : ndarray
        A node for each tree.
    values : ndarray
        By node, what a leaf says: a number, or (nodes, targets) numbers.
    targets : ndarray, optional
        By tree, what its numbers are for; the first target without it.

    Returns
    -------
    tuple of ndarray
        The operator's operands behind the table: nodes, without those that no root leads to, trees,
        and leaves where they speak of several targets.

    Examples
    --------
    >>> nodes = Branches(*np.array([[3, 0, 0], [0, 0, 0], [2, 1, 2], [1, 1, 2]]))
    >>> table, trees = packed(nodes, np.array([0]), values=np.array([0, 10, 20], "float32"))
    >>> table.reshape(-1, 4)[:, [0, 2]].tolist()
    [[3, 8], [0, 4], [0, 8]]
    """
    order = _walked(branches, roots)
    number = np.full(len(branches.features), -1)
    number[order] = np.arange(len(order))
    is_leaf = branches.leaves[order]
    dtype = values.dtype
    word = np.dtype("int64" if dtype == "float64" else "int32")
    nodes = np.zeros((len(order), 4), word)
    nodes[:, 0] = np.where(is_leaf, 0, branches.features[order])
    thresholds = np.where(is_leaf, np.nan, branches.thresholds[order]).astype(dtype)
    nodes[:, 1] = thresholds.view(word)
    missing, strict = (
        np.broadcast_to(bits, branches.features.shape)[order] & ~is_leaf
        for bits in (branches.missing, branches.strict)
    )
    if branches.compared != "both":
        strict = np.zeros_like(strict)
    nodes[:, 2] = number[branches.above[order]] * LINK + missing * MISSING + strict * STRICT
    nodes[:, 3] = number[branches.below[order]] * LINK
    trees = np.zeros((len(roots), 2), "int32")
    trees[:, 0] = number[roots] * LINK
    if values.ndim == 1:
        nodes[is_leaf, 3] = values[order].view(word)[is_leaf]
        trees[:, 1] = 0 if targets is None else targets
        return nodes.reshape(-1), trees
    nodes[is_leaf, 3] = np.arange(is_leaf.sum())
    return nodes.reshape(-1), trees, np.ascontiguousarray(values[order][is_leaf])


def _walked(branches: Branches, roots: np.ndarray) -> np.ndarray:
    """Nodes from the roots on, level by level within a tree; what is shared, once."""
    seen = np.zeros(len(branches.features), bool)
    order: list[np.ndarray] = []
    for root in roots:
        at = np.array([root])
        while (at := at[~seen[at]]).size:
            seen[at] = True
            order.append(at)
            below = np.stack([branches.below[at], branches.above[at]], 1).reshape(-1)
            at = below[np.sort(np.unique(below, return_index=True)[1])]
    return np.concatenate(order)
