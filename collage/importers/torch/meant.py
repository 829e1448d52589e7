"""Rows of tensors of which only some are meant, as many as data say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from collage.backends.contract.errors import ModelError
from collage.importers.torch.choosing import place_of

aten = torch.ops.aten

Pieces = tuple[tuple[fx.Node | None, int], ...]


@dataclass(frozen=True)
class Rows:
    """Along an axis not all of a tensor is meant.

    Attributes
    ----------
    axis : int
        Counted from the front.
    valid : tuple of (fx.Node or None, int)
        Piece by piece along it: what says which are, None where all are, and how many there are.
    among : tuple of (fx.Node or None, int)
        As ``valid`` of the tensor whose rows these are the places of, of those that are; empty for
        everything else.
    """

    axis: int
    valid: Pieces
    among: Pieces = ()


class UnknownError(Exception):
    """What becomes of rows is not known.

    Parameters
    ----------
    node : torch.fx.Node, optional
        Where.
    """

    def __init__(self, node: fx.Node | None = None) -> None:
        super().__init__("" if node is None else node.format_node())
        self.node = node

    def refusal(self) -> ModelError:
        """What the user is told where there is no other way.

        Returns
        -------
        ModelError
            Names the line of the model, where it is known.
        """
        place = "what follows" if self.node is None else place_of(self.node)
        return ModelError(
            f"rows are chosen of which the data say how many there are, and {place} is not known "
            "to compute the same whatever their number; cut the model there, and compute the rest "
            "outside"
        )


Known = Mapping[fx.Node, Rows]
"""What is known of nodes that have rows of which some are none."""

Follow = Callable[[Known, fx.Node], Rows]
"""Says what rows a node has."""


def value_of(node: fx.Node) -> Any:
    """What PyTorch knows of a node's result: shape and element type."""
    return node.meta["val"]


def axis_of(node: fx.Node, given: Any) -> int:
    """An axis of a node's result, counted from the front.

    Parameters
    ----------
    node : torch.fx.Node
        Gives a tensor.
    given : int
        Below zero where it counts from the end.

    Returns
    -------
    int
        Not below zero.
    """
    rank = int(value_of(node).dim())
    return int(given) % max(rank, 1)


def same_rows(found: Sequence[Rows]) -> Rows:
    """What all agree on.

    Parameters
    ----------
    found : sequence of Rows
        Of one operand each.

    Returns
    -------
    Rows
        That are no places of others.

    Raises
    ------
    UnknownError
        When they differ, or there are none.
    """
    if len({(one.axis, one.valid) for one in found}) != 1:
        raise UnknownError
    return Rows(found[0].axis, found[0].valid)


def joined(graph: fx.Graph, rows: Rows) -> fx.Node:
    """A vector that says which rows are; the graph inserts where it is asked to.

    Parameters
    ----------
    graph : torch.fx.Graph
        Takes what joins the pieces.
    rows : Rows
        Of one piece or several.

    Returns
    -------
    torch.fx.Node
        Of truth values.
    """
    call = graph.call_function
    parts = [
        valid if valid is not None else call(aten.full.default, ([n], True))
        for valid, n in rows.valid
    ]
    return parts[0] if len(parts) == 1 else call(aten.cat.default, (parts,))
