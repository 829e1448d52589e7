"""What of a program follows from how many rows there may be: seen where there is other room."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from collage.importers.torch.meant import Rows, UnknownError

_SIZES = {
    **dict.fromkeys(("view.default", "reshape.default", "_unsafe_view.default"), 1),
    **dict.fromkeys(("full.default", "empty.memory_format", "arange.default"), 0),
    **dict.fromkeys(("expand.default", "split_with_sizes.default", "chosen_rows.default"), 1),
    **dict.fromkeys(("arange.start", "arange.start_step"), 1),
}
"""Which argument is only how large the result is."""

_ENDS = {"topk.default": 1}
"""Which argument says how many of the rows are taken, which may be all."""


class Sizes:
    """A graph beside the one with room for other numbers of rows.

    Parameters
    ----------
    graph, other : torch.fx.Graph
        In the second one everything that chooses rows has other room.

    Raises
    ------
    UnknownError
        When more differs than sizes.
    """

    def __init__(self, graph: fx.Graph, other: fx.Graph) -> None:
        nodes, others = list(graph.nodes), list(other.nodes)
        if len(nodes) != len(others):
            raise UnknownError
        for node, its in zip(nodes, others, strict=True):
            if not _is_alike(node, its):
                raise UnknownError(node)
        self._other = dict(zip(nodes, others, strict=True))

    def axes(self, node: fx.Node) -> frozenset[int]:
        """The axes that are of another length with other room, of whichever of a node's results."""
        pairs = zip(_tensors(node), _tensors(self._other[node]), strict=True)
        return frozenset(
            axis
            for mine, its in pairs
            for axis, (n, m) in enumerate(zip(mine.shape, its.shape, strict=True))
            if n != m
        )

    def extents(self, node: fx.Node, axis: int) -> tuple[int, int]:
        """How long an axis is, in either graph.

        Parameters
        ----------
        node : torch.fx.Node
            Of the first graph; its first result is asked for.
        axis : int
            From the front.

        Returns
        -------
        tuple of (int, int)
            In the first graph, and in the other one.
        """
        mine, its = _tensors(node)[0], _tensors(self._other[node])[0]
        return int(mine.shape[axis]), int(its.shape[axis])

    def as_long_as(self, node: fx.Node, axis: int, known: Iterable[tuple[fx.Node, Rows]]) -> Rows:
        """The rows of which there are as many as a node has along an axis, which it was made for.

        Parameters
        ----------
        node : fx.Node
            Made of sizes alone.
        axis : int
            Whose extent follows from how many rows there may be.
        known : iterable of (fx.Node, Rows)
            What has rows.

        Returns
        -------
        Rows
            Along that axis.

        Raises
        ------
        UnknownError
            When there are none, or several that are as many.
        """
        wanted = self.extents(node, axis)
        found = {
            rows.valid
            for other, rows in known
            if other in self._other and self.extents(other, rows.axis) == wanted
        }
        if len(found) != 1:
            raise UnknownError
        return Rows(axis, found.pop())


def require_same_numbers(
    program: torch.export.ExportedProgram, empty: torch.export.ExportedProgram
) -> None:
    """Hold numbers that are no sizes against those of a program with room for no rows.

    A limit cuts any other number of rows to one and the same: ``len(found[:1])`` is 1 for two rows
    and for all.

    Parameters
    ----------
    program, empty : torch.export.ExportedProgram
        Where an operator differs, the code went another way for none, and nothing is compared.

    Warns
    -----
    UserWarning
        When nothing was compared.

    Raises
    ------
    ModelError
        When one differs: it was computed with how many rows there are.
    """
    nodes, others = list(program.graph.nodes), list(empty.graph.nodes)
    if [_name(node) for node in nodes] != [_name(node) for node in others]:
        warnings.warn(
            "numbers that are computed with how many rows data choose are not held against those "
            "for none, where other operators run; hold results against the module's where few or "
            "none are",
            stacklevel=4,
        )
        return
    for node, its in zip(nodes, others, strict=True):
        if not _is_alike(node, its):
            raise UnknownError(node).refusal()


def is_sized(node: fx.Node) -> bool:
    """Whether a node's result is as large as an argument says."""
    return _name(node) in _SIZES


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return [one for one in leaves if isinstance(one, torch.Tensor)]


def _is_alike(node: fx.Node, other: fx.Node) -> bool:
    """Whether nothing of a node but sizes follows from how many rows there may be."""
    name = _name(node)
    if name != _name(other) or len(node.args) != len(other.args):
        return False
    end = _ENDS.get(name)
    given, wanted = list(node.args), list(other.args)
    if end is not None and (_takes_all(node, end) or _takes_all(other, end)):
        del given[end], wanted[end]
    elif (size := _SIZES.get(name)) is not None and len(given) > size:
        del given[size], wanted[size]
    return _is_same([given, dict(node.kwargs)], [wanted, dict(other.kwargs)])


def _takes_all(node: fx.Node, end: int) -> bool:
    """As many as there are, which is what a limit above says then."""
    shape = node.args[0].meta["val"].shape
    axis = node.args[end + 1] if len(node.args) > end + 1 else -1
    return bool(shape) and node.args[end] == shape[axis]


def _is_same(one: Any, other: Any) -> bool:
    """Whether arguments are, but for what computes them."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[k], other[k]) for k in one)
    if isinstance(one, fx.Node):
        return isinstance(other, fx.Node)
    return type(one) is type(other) and bool(one == other)
