"""Loops as ones of states alone, of which the first says whether there is another round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import fx

from collage.importers.torch.courses.writer import Writer, aten


class Inlining(Protocol):
    """Who writes bodies."""

    def inline(self, source: fx.GraphModule, given: Sequence[Any]) -> list[Any]:
        """Write a graph for these arguments.

        Parameters
        ----------
        source : fx.GraphModule
            With its bodies.
        given : sequence
            A node for each of its inputs.

        Returns
        -------
        list
            What stands for its results.
        """


Loop = Callable[[Writer, Inlining, Sequence[fx.Node]], list[Any]]
"""Writes a round: for the states, and what else is read, the states of the next round."""


def as_loop(condition: fx.GraphModule, body: fx.GraphModule, count: int) -> Loop:
    """A loop whose condition is asked behind every round for the next one.

    Parameters
    ----------
    condition, body : fx.GraphModule
        Of a ``while_loop``.
    count : int
        Its states.

    Returns
    -------
    Loop
        Writes its rounds.
    """

    def write(writer: Writer, inner: Inlining, nodes: Sequence[fx.Node]) -> list[Any]:
        states, others = nodes[1 : 1 + count], nodes[1 + count :]
        found = [
            one if isinstance(one, fx.Node) else writer.constant(one)
            for one in inner.inline(body, [*states, *others])
        ]
        (going,) = inner.inline(condition, [*found, *others])
        going = going if isinstance(going, fx.Node) else writer.constant(going)
        return [writer.emit(aten.reshape.default, going, []), *found]

    return write


def scanned(body: fx.GraphModule, count: int, rows: int, length: int) -> Loop:
    """A loop over rows: what each gives is written into a state of as many rows.

    Parameters
    ----------
    body : fx.GraphModule
        Of a ``scan``.
    count, rows : int
        Its states, and the tensors whose rows it takes.
    length : int
        How many rows there are.

    Returns
    -------
    Loop
        Writes its rounds.
    """

    takes = len(body.graph.find_nodes(op="placeholder"))

    def write(writer: Writer, inner: Inlining, nodes: Sequence[fx.Node]) -> list[Any]:
        place, states = nodes[1], nodes[2 : 2 + count]
        # Behind what the rounds gather come the tensors that are scanned, and what else is read.
        first = len(nodes) - (takes - count)
        tensors, others = nodes[first : first + rows], nodes[first + rows :]
        taken = [writer.emit(aten.index.Tensor, one, [place]) for one in tensors]
        found = [
            one if isinstance(one, fx.Node) else writer.constant(one)
            for one in inner.inline(body, [*states, *taken, *others])
        ]
        following = writer.emit(aten.add.Tensor, place, 1)
        going = writer.emit(aten.lt.Scalar, following, length)
        gathered = [
            writer.emit(aten.index_put.default, all_rows, [place], row)
            for all_rows, row in zip(nodes[2 + count : first], found[count:], strict=True)
        ]
        return [going, following, *found[:count], *gathered]

    return write
