"""Products of groups of rows, each with a matrix of its own: how mixtures of experts compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_OF_TRANSFORMERS = "transformers.grouped_mm_fallback.default"
"""Defined where transformers is imported: products as PyTorch's, of more element types."""


def _group_of(places: int, ends: torch.Tensor) -> torch.Tensor:
    """The group that each place belongs to, by where groups end; behind all of them, their number.

    A group without places ends where the one before it does.
    """
    return (torch.arange(places).unsqueeze(1) >= ends.unsqueeze(0)).sum(1)


def _rows(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """(S, K) by (G, K, N): every row with its group's matrix; rows behind all groups are zero."""
    count, groups, width = x.shape[0], weight.shape[0], weight.shape[2]
    group = _group_of(count, ends)
    known = group.clamp(max=groups - 1)
    if count < groups:
        # No more matrices are copied than there are.
        found = torch.bmm(x.unsqueeze(1), weight.index_select(0, known)).squeeze(1)
    else:
        # Which rows are a group's is known when it runs: all of them, and one of the products kept.
        every = torch.bmm(x.unsqueeze(0).expand(groups, -1, -1), weight)
        found = every.gather(0, known.reshape(1, count, 1).expand(1, count, width)).squeeze(0)
    return torch.where((group < groups).unsqueeze(1), found, torch.zeros([], dtype=x.dtype))


def _inner(x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """(M, S) by (S, N): a product for every group of the summed axis."""
    group = _group_of(x.shape[1], ends)
    member = group.unsqueeze(0) == torch.arange(ends.shape[0]).unsqueeze(1)
    zero = torch.zeros([], dtype=x.dtype)
    mine = torch.where(member.unsqueeze(1), x.unsqueeze(0), zero)
    # What belongs to another group is no part of the sum, whatever it is.
    theirs = torch.where(member.unsqueeze(2), y.unsqueeze(0), zero)
    return torch.bmm(mine, theirs)


def _grouped(
    x: torch.Tensor,
    y: torch.Tensor,
    ends: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    if bias is not None:
        return NotImplemented
    if ends is None:
        found = torch.bmm(x, y)
    elif x.dim() == 2:
        found = _rows(x, y, ends) if y.dim() == 3 else _inner(x, y, ends)
    else:
        found = _rows(y.mT, x.mT, ends).mT
    return found.to(out_dtype or x.dtype)


def grouped_products(program: torch.export.ExportedProgram) -> dict[Any, Callable[..., Any]]:
    """What takes a program's grouped products apart, by operator."""
    return {torch.ops.aten._grouped_mm.default: _grouped} | {
        node.target: _grouped
        for node in program.graph.nodes
        if node.op == "call_function" and str(node.target) == _OF_TRANSFORMERS
    }
