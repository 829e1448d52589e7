"""Rows that data choose, followed to where they end: in sums, in what is sorted, and in results.

Graph networks drop some of the edges that they are given (loops), add others, and sum what comes
along them into their nodes. As many edges as there may be are computed, and those that are none
are added to a node behind the last. Detectors choose boxes among boxes: those that are none come
last in whatever is sorted, and change nothing of what is found of all. Results whose number of rows
data say come out with that number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from collage.importers.torch.choosing import choosers_of
from collage.importers.torch.cut import CutRows, give_rows
from collage.importers.torch.following import MOVED, elementwise
from collage.importers.torch.held import holding
from collage.importers.torch.meant import Pieces, Rows, UnknownError, joined
from collage.importers.torch.mixing import MIXED
from collage.importers.torch.nodes import give_types
from collage.importers.torch.sizes import Sizes, is_sized
from collage.importers.torch.summing import SUMS, absorb, summed_rows

aten = torch.ops.aten

_CHECKS = ("_assert_tensor_metadata.default", "_assert_scalar.default")


def with_absorbed_rows(
    program: torch.export.ExportedProgram, again: Callable[[], torch.export.ExportedProgram]
) -> tuple[torch.export.ExportedProgram, list[CutRows]] | None:
    """A program that is right however many rows are chosen.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Already in few kinds of operators; left as it is where None is given.
    again : callable
        Gives it with other room for rows everywhere: what differs was computed with how many rows
        there are.

    Returns
    -------
    tuple of (torch.export.ExportedProgram, list of CutRows), or None
        The numbers of rows that results have are behind them. None where nothing chooses rows.

    Raises
    ------
    UnknownError
        When it is not known what becomes of them.
    """
    if not choosers_of(program):
        return None
    graph = program.graph
    try:
        following = Following(graph, Sizes(graph, again().graph))
        following.follow()
        cut = give_rows(program, following)
    except UnknownError:
        graph.eliminate_dead_code()
        raise
    graph.eliminate_dead_code()
    give_types(graph)
    program.graph_module.recompile()
    return program, cut


class Following:
    """Follows rows from where they are chosen to where they end.

    Parameters
    ----------
    graph : torch.fx.Graph
        Of the program. Nothing in it is changed meanwhile, only added.
    sizes : Sizes
        What of it follows from how many rows there may be.

    Attributes
    ----------
    rows : dict of fx.Node to Rows
        What has rows of which some are none.
    counts : dict of fx.Node to fx.Node
        Of what says which rows are: how many they are, where they are the first.
    changes : list of callable
        What is to be done to the graph.
    results : dict of int to Rows
        Of what the program gives, by its place.
    merged : dict
        Of pieces that stand for rows and elements of each: the rows', and how many of each.
    """

    def __init__(self, graph: fx.Graph, sizes: Sizes) -> None:
        self.graph = graph
        self.rows: dict[fx.Node, Rows] = {}
        self.counts: dict[fx.Node, fx.Node] = {}
        self.changes: list[Callable[[], None]] = []
        self._sizes = sizes
        self.results: dict[int, Rows] = {}
        self.merged: dict[Pieces, tuple[Pieces, int]] = {}
        self._coordinates: dict[fx.Node, tuple[int, Pieces]] = {}

    def follow(self) -> None:
        """Learn of every node what rows it has, and what is to be changed.

        Raises
        ------
        UnknownError
            When it is not known what becomes of them.
        """
        for node in list(self.graph.nodes):
            if node.op not in ("call_function", "placeholder"):
                continue
            try:
                self._learn(node, getattr(node.target, "__name__", ""))
            except UnknownError as err:
                raise UnknownError(node) from err
        for place, node in enumerate(self.graph.output_node().args[0]):
            if node in self.rows:
                self.results[place] = self.rows[node]

    def _learn(self, node: fx.Node, name: str) -> None:
        """What rows a node has, of what those have that it is computed from."""
        axes = self._sizes.axes(node)
        if name == "chosen_rows.default":
            self._begin(node, self._among_rows(node))
            return
        if any(one in self.rows for one in node.all_input_nodes):
            if node not in self.rows and name not in _CHECKS:
                self._follow(node, name)
        elif axes and node not in self.rows:
            self._made(node, name)
        known = self.rows.get(node)
        if axes and (known is None or axes != {known.axis}):
            raise UnknownError

    def first(self, count: fx.Node, length: int, among: Pieces = (), axis: int = 0) -> Rows:
        """As many of the first rows as a vector of one element says.

        Parameters
        ----------
        count : fx.Node
            Says it; the graph inserts behind it.
        length : int
            How many there may be.
        among, axis
            See :class:`Rows`.

        Returns
        -------
        Rows
            Of one piece.
        """
        places = self.graph.call_function(aten.arange.default, (length,))
        valid = self.graph.call_function(aten.lt.Tensor, (places, count))
        self.counts[valid] = count
        return Rows(axis, ((valid, length),), among)

    def count_of(self, rows: Rows) -> fx.Node:
        """How many rows are, a vector of one element; the graph inserts where that is asked."""
        valid = rows.valid[0][0]
        if len(rows.valid) == 1 and valid in self.counts:
            return self.counts[valid]
        call = self.graph.call_function
        return call(aten.sum.dim_IntList, (joined(self.graph, rows), [0], True))

    def _follow(self, node: fx.Node, name: str) -> None:
        found: Any = NotImplemented
        if name in MIXED:
            with self.graph.inserting_before(node):
                found = MIXED[name](self, node)
        rows = self._summed(node) if name in SUMS else None
        # What is summed at places has those of rows that are none replaced.
        held = holding(self.graph, self.rows, node, name)
        if held is not None and (rows is None or name == "index_put.default"):
            self.changes.append(held)
        if rows is not None:
            self.changes.append(lambda: absorb(self.graph, node, rows))
            found = self.rows.get(node.args[0])
        elif found is NotImplemented:
            found = self._along(node) or self._moved(node, name)
        if found is not None:
            self.rows[node] = found

    def _summed(self, node: fx.Node) -> Rows | None:
        """The rows of places that are summed into; None where these lie within rows."""
        try:
            return summed_rows(self.rows, node)
        except UnknownError:
            if node.args[0] not in self.rows:
                raise
            return None

    def _along(self, node: fx.Node) -> Rows | None:
        """The places along one axis of several, in which a mask holds."""
        source, axis = node.args[0], node.args[-1]
        if source not in self._coordinates or node.target is aten._to_copy.default:
            return None
        if node.target is aten.unbind.int:
            self._coordinates[node] = self._coordinates[source]
            return None
        chosen, among = self._coordinates[source]
        if node.target is aten.slice.Tensor:
            axis = node.args[2]
            one_column = node.args[1] == 1 and node.args[3] == axis + 1
        else:
            one_column = node.target is operator.getitem or node.args[1] == 1
        known = (operator.getitem, aten.select.int, aten.slice.Tensor)
        if node.target not in known or not one_column:
            return None
        return Rows(0, self.rows[source].valid, among if axis == chosen else ())

    def _made(self, node: fx.Node, name: str) -> None:
        """As many rows as others are."""
        axes = self._sizes.axes(node)
        if not is_sized(node) or len(axes) != 1:
            raise UnknownError
        rows = self._sizes.as_long_as(node, next(iter(axes)), self.rows.items())
        if name.startswith("arange"):
            begins = [one for one in node.args if isinstance(one, int)]
            first = len(rows.valid) == 1 and rows.valid[0][0] in self.counts
            if not first or begins not in ([begins[-1]], [0, begins[-1]], [0, begins[1], 1]):
                raise UnknownError
            rows = Rows(rows.axis, rows.valid, rows.valid)
        self.rows[node] = rows

    def _begin(self, node: fx.Node, mask: Rows | None) -> None:
        """The first of its results are rows; nobody else may have asked how many there are."""
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
            raise UnknownError
        among = mask.valid if mask and node.args[0].meta["val"].dim() == 1 else ()
        users = list(node.users)
        with self.graph.inserting_before(node.next):
            count = self.graph.call_function(operator.getitem, (node, 1))
            rows = self.first(count, int(node.meta["val"][0].shape[0]), among)
        for taken in users:
            self.rows[taken] = rows
            if mask and not among:
                self._coordinates[taken] = mask.axis, mask.valid

    def _among_rows(self, node: fx.Node) -> Rows | None:
        """Of rows that were chosen before, those that are none are not chosen again."""
        mask = node.args[0]
        rows = self.rows.get(mask)
        if rows is None:
            return None
        shape = [1] * mask.meta["val"].dim()
        shape[rows.axis] = -1
        with self.graph.inserting_before(node):
            valid = self.graph.call_function(aten.view.default, (joined(self.graph, rows), shape))
            both = self.graph.call_function(aten.logical_and.default, (mask, valid))
        both.meta["val"] = mask.meta["val"]

        def limit() -> None:
            node.args = (both, *node.args[1:])

        self.changes.append(limit)
        return rows

    def _moved(self, node: fx.Node, name: str) -> Rows:
        follow = MOVED.get(name)
        if follow is None and torch.Tag.pointwise in getattr(node.target, "tags", ()):
            follow = elementwise
        if follow is None:
            raise UnknownError
        rows = follow(self.rows, node)
        value, length = node.meta["val"], sum(n for _, n in rows.valid)
        if any(
            one.shape[rows.axis] != length
            for one in (value if isinstance(value, list | tuple) else [value])
        ):
            raise UnknownError
        return rows
