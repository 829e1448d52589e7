"""Values and rows that are there several times, each of them once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

aten = torch.ops.aten

_NONE = cast(tuple[torch.Tensor, ...], NotImplemented)

_MOST_COLUMNS = 64
"""Rows are sorted by one column after the other."""


def is_known(x: torch.Tensor) -> bool:
    """Whether a tensor has elements, and it is known how many.

    Examples
    --------
    >>> is_known(torch.zeros(2, 3)), is_known(torch.zeros(0))
    (True, False)
    """
    return x.dim() > 0 and all(isinstance(n, int) and n > 0 for n in x.shape)


def _first_of_equals(ordered: torch.Tensor) -> torch.Tensor:
    """Which rows differ from the one before."""
    fresh = ordered[1:] != ordered[:-1]
    fresh = fresh.flatten(1).any(1) if fresh.dim() > 1 else fresh
    return torch.cat([torch.ones(1, dtype=torch.bool, device=ordered.device), fresh])


def _numbered(
    rows: torch.Tensor, order: torch.Tensor | None, *, inverse: bool, counts: bool
) -> tuple[torch.Tensor, ...]:
    """The first of each run of equal rows, which of them each is, and how often there is each.

    ``order`` says where rows stood before they were sorted.
    """
    first = _first_of_equals(rows)
    found: torch.Tensor = aten.index.Tensor(rows, [first])
    number = first.to(torch.int64).cumsum(0) - 1
    which, many = (torch.empty(0, dtype=torch.int64, device=rows.device) for _ in range(2))
    if inverse:
        which = number if order is None else torch.zeros_like(number).scatter(0, order, number)
    if counts:
        mine: torch.Tensor = aten.index.Tensor(number, [first])
        many = (mine.unsqueeze(1) == number.unsqueeze(0)).sum(1)
    return found, which, many


def _distinct(
    x: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, ...]:
    """In ascending order; which of them each element is, and how often there is each."""
    if not is_known(x):
        return _NONE
    ordered, order = torch.sort(x.reshape(-1), stable=True)
    wanted = {"inverse": return_inverse, "counts": return_counts}
    found, which, many = _numbered(ordered, order, **wanted)
    return found, which.reshape(x.shape) if return_inverse else which, many


def _distinct_in_turn(
    x: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[torch.Tensor, ...]:
    """One for each run of equal values; which run each element is in, and how long they are."""
    if not is_known(x):
        return _NONE
    wanted = {"inverse": return_inverse, "counts": return_counts}
    if dim is not None:
        found, which, many = _numbered(x.movedim(dim, 0), None, **wanted)
        return found.movedim(0, dim), which, many
    found, which, many = _numbered(x.reshape(-1), None, **wanted)
    return found, which.reshape(x.shape) if return_inverse else which, many


def _distinct_rows(
    x: torch.Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, ...]:
    """As :func:`_distinct`, of what lies along an axis, in the order of a dictionary."""
    if not is_known(x):
        return _NONE
    rows = x.movedim(dim, 0)
    columns = rows.flatten(1).unbind(1)
    if len(columns) > _MOST_COLUMNS:
        return _NONE
    order = torch.arange(len(rows), device=x.device)
    for column in reversed(columns):
        order = order[torch.sort(column[order], stable=True)[1]]
    wanted = {"inverse": return_inverse, "counts": return_counts}
    found, which, many = _numbered(rows.index_select(0, order), order, **wanted)
    return found.movedim(0, dim), which, many


def _rows_in_turn(
    x: torch.Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    return _distinct_in_turn(x, return_inverse, return_counts, dim)


def distinct_ones() -> dict[Any, Callable[..., Any]]:
    """What gives each value or row once, by operator, in terms of what PyTorch has.

    Examples
    --------
    >>> table = distinct_ones()
    >>> rows = torch.tensor([[2, 1], [0, 3], [2, 1]])
    >>> table[aten.unique_dim.default](rows, 0, True, True, True)
    (tensor([[0, 3],
            [2, 1]]), tensor([1, 0, 1]), tensor([1, 2]))
    """
    return {
        aten._unique2.default: _distinct,
        aten.unique_consecutive.default: _distinct_in_turn,
        aten.unique_dim.default: _distinct_rows,
        aten.unique_dim_consecutive.default: _rows_in_turn,
    }
