"""The operator that gives where a mask holds, with room for as many places as there may be."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

UNKNOWN = -(1 << 40)
"""How many rows more than there can be: none, and their number is not yet that of all."""


@cache
def chosen_rows_operator() -> Any:
    """The operator: places where a mask holds, as rows of coordinates, and how many."""
    torch.library.define("collage::chosen_rows", "(Tensor mask, int more) -> (Tensor, Tensor)")

    def shapes(mask: torch.Tensor, more: int) -> tuple[torch.Tensor, torch.Tensor]:
        known = more != UNKNOWN
        count = mask.numel() + more if known else torch.library.get_ctx().new_dynamic_size()
        rows = mask.new_empty((count, mask.dim()), dtype=torch.int64)
        return rows, mask.new_empty((1,), dtype=torch.int64)

    def found(mask: torch.Tensor, more: int) -> tuple[torch.Tensor, torch.Tensor]:
        places = mask.nonzero()
        rows = places.new_zeros((mask.numel() + more, mask.dim()))
        rows[: len(places)] = places
        return rows, torch.tensor([len(places)])

    torch.library.register_fake("collage::chosen_rows", shapes)
    torch.library.impl("collage::chosen_rows", "cpu", found)
    return torch.ops.collage.chosen_rows.default


def chosen_places(mask: torch.Tensor, more: int) -> torch.Tensor:
    """Where a mask holds, with room for as many places as there may be.

    Parameters
    ----------
    mask : torch.Tensor
        Truth values.
    more : int
        How many places more there is room for.

    Returns
    -------
    torch.Tensor
        Rows of coordinates, zeros behind those that there are.

    Examples
    --------
    >>> chosen_places(torch.tensor([False, True]), 0)
    tensor([[1],
            [0]])
    """
    found: torch.Tensor = chosen_rows_operator()(mask, more)[0]
    return found


Room = Callable[[torch.Tensor, int], int]
"""Told a mask and its number, how many places more there is room for than it has."""


def all_of_them(mask: torch.Tensor, number: int) -> int:
    """Room for as many rows as there may be.

    Parameters
    ----------
    mask : torch.Tensor
        Chooses rows.
    number : int
        Of what chooses; unused.

    Returns
    -------
    int
        How many more than there may be.
    """
    return 0


def none_of_them(mask: torch.Tensor, number: int) -> int:
    """Room for no row.

    Parameters
    ----------
    mask : torch.Tensor
        Chooses rows.
    number : int
        Of what chooses; unused.

    Returns
    -------
    int
        How many more than there may be.
    """
    return -int(mask.numel())


def other_room(mask: torch.Tensor, number: int) -> int:
    """Room for another number of rows than there may be; for few, which no limit of a model cuts.

    Parameters
    ----------
    mask : torch.Tensor
        Chooses them.
    number : int
        Of what chooses, so that each has another number of rows.

    Returns
    -------
    int
        How many more than there may be.

    Examples
    --------
    >>> other_room(torch.ones(5), 0), other_room(torch.ones(5), 3)
    (-3, 1)
    """
    return 2 + number - mask.numel() or 1


def places_of(graph: fx.Graph, valid: fx.Node, length: int) -> tuple[fx.Node, fx.Node]:
    """Where rows are, of a vector that says which; and how many.

    Parameters
    ----------
    graph : torch.fx.Graph
        Takes what finds them.
    valid : torch.fx.Node
        Of truth values.
    length : int
        Its.

    Returns
    -------
    tuple of (torch.fx.Node, torch.fx.Node)
        As many places as there may be, and a vector of one element.
    """
    call = graph.call_function
    order = call(aten.arange.default, (length,))
    behind = call(aten.full.default, ([], length), {"dtype": torch.int64})
    keys = call(aten.where.self, (valid, order, behind))
    ordered = call(aten.sort.default, (keys,))
    first = call(operator.getitem, (ordered, 0))
    places = call(aten.clamp.default, (first, 0, length - 1))
    return places, call(aten.sum.dim_IntList, (valid, [0], True))
