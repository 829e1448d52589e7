"""Losses that PyTorch cannot trace, written in operators that it can.

They look at what tensors hold: whether a variance is below zero, and how long each sequence is.
"""

from __future__ import annotations

import math
from typing import Any

import torch


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """As PyTorch's, without a look at whether a variance is below zero.

    Parameters
    ----------
    input, target : torch.Tensor
        What was foreseen, and what came.
    var : torch.Tensor or float
        Variances, of one axis less, or of length 1 there, where they are for whole rows.
    full : bool
        Whether the constant belongs to it.
    eps : float
        The least variance.
    reduction : str
        ``none``, ``mean`` or ``sum``.

    Returns
    -------
    torch.Tensor
        The loss.

    Examples
    --------
    >>> gaussian_nll_loss(torch.ones(2), torch.zeros(2), torch.ones(2))
    tensor(0.5000)
    """
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    if var.shape != input.shape and input.shape[:-1] == var.shape:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return _reduced(loss, reduction)


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Connectionist temporal classification, step by step over the most steps that there are.

    Parameters
    ----------
    log_probs : torch.Tensor
        (steps, samples, classes), or without samples.
    targets : torch.Tensor
        (samples, most labels), or all labels in one row.
    input_lengths, target_lengths : torch.Tensor or sequence of int
        Of each sample.
    blank : int
        The class that stands for none.
    reduction : str
        ``none``, ``mean`` or ``sum``.
    zero_infinity : bool
        Whether what is impossible counts as nothing.

    Returns
    -------
    torch.Tensor
        The loss.

    Examples
    --------
    >>> even = torch.zeros(2, 1, 2).log_softmax(-1)
    >>> ctc_loss(even, torch.tensor([[1]]), [2], [1])
    tensor(0.2877)
    """
    single = log_probs.dim() == 2
    steps_of = log_probs.unsqueeze(1) if single else log_probs
    count = steps_of.shape[1]
    ends, lengths = (_row(one, count) for one in (input_lengths, target_lengths))
    rows = targets.reshape(1, -1) if single else targets
    if rows.dim() == 1:
        begins = (torch.cumsum(lengths, 0) - lengths).unsqueeze(1)
        places = begins + torch.arange(rows.shape[0])
        rows = rows[places.clamp(max=rows.shape[0] - 1)]
    loss = _of_paths(steps_of, rows.to(torch.int64), ends, lengths, blank)
    if zero_infinity:
        loss = torch.where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        return (loss / lengths.clamp(min=1).to(loss.dtype)).mean()
    loss = _reduced(loss, reduction)
    return loss.squeeze(0) if single and reduction == "none" else loss


def _of_paths(
    steps: torch.Tensor, rows: torch.Tensor, ends: torch.Tensor, lengths: torch.Tensor, blank: int
) -> torch.Tensor:
    """Logarithms of all paths together, of which each goes through blanks between the labels."""
    count, most = rows.shape
    wide = 2 * most + 1
    labels = torch.full((count, wide), blank, dtype=torch.int64)
    spread = torch.stack([rows, torch.full_like(rows, blank)], 2).reshape(count, 2 * most)
    labels = torch.cat([labels[:, :1], spread], 1)
    # Behind a row's end anything may stand.
    labels = labels.clamp(0, steps.shape[2] - 1)
    may_skip = torch.cat(
        [
            torch.zeros(count, min(2, wide), dtype=torch.bool),
            (labels[:, 2:] != labels[:, :-2]) & (labels[:, 2:] != blank),
        ],
        1,
    )
    places = torch.arange(wide)
    share = steps.gather(2, labels.unsqueeze(0).expand(steps.shape[0], -1, -1))
    never = torch.full((count, 1), -math.inf, dtype=steps.dtype)
    begins = places < torch.where(lengths > 0, 2, 1).unsqueeze(1)
    paths = torch.where(begins, share[0], -math.inf)
    for step in range(1, steps.shape[0]):
        one = torch.cat([never, paths[:, :-1]], 1)
        two = torch.cat([never, never, paths[:, :-2]], 1)[:, :wide]
        two = torch.where(may_skip, two, -math.inf)
        found = _log_of_sum(torch.stack([paths, one, two])) + share[step]
        paths = torch.where((step < ends).unsqueeze(1), found, paths)
    last = (2 * lengths).unsqueeze(1)
    label = torch.where(lengths.unsqueeze(1) > 0, last - 1, last)
    of_label = torch.where(label < last, paths.gather(1, label), -math.inf)
    found = -_log_of_sum(torch.stack([paths.gather(1, last), of_label])).squeeze(1)
    none = torch.where(lengths > 0, math.inf, 0.0).to(found.dtype)
    return torch.where(ends > 0, found, none)


def _log_of_sum(x: torch.Tensor) -> torch.Tensor:
    """Along the first axis; of nothing but -inf it is -inf."""
    most = x.amax(0)
    known = torch.where(most == -math.inf, 0.0, most)
    return torch.log(torch.exp(x - known).sum(0)) + known


def _row(lengths: Any, count: int) -> torch.Tensor:
    found = lengths if isinstance(lengths, torch.Tensor) else torch.tensor(list(lengths))
    return found.to(torch.int64).reshape(count)


def _reduced(loss: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss
