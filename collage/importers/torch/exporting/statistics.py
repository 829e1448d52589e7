"""Covariances and correlations, which PyTorch computes only where it may look at what they hold."""

from __future__ import annotations

from typing import Any

import torch


def cov(
    input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> torch.Tensor:
    """What ``torch.cov`` gives, without a warning of too few observations.

    Parameters
    ----------
    input : torch.Tensor
        A row for each variable; all of one, where it is a vector.
    correction : int
        By how much fewer observations there are than were made.
    fweights, aweights : torch.Tensor, optional
        How often each observation was made, and how much it counts.

    Returns
    -------
    torch.Tensor
        Square; a number for one variable.

    Examples
    --------
    >>> cov(torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    x = input if input.ndim > 1 else input.reshape(1, -1)
    count = x.shape[1]
    weights = fweights
    if aweights is not None:
        weights = aweights if fweights is None else fweights * aweights
    if weights is None:
        share: Any = max(count - correction, 0)
        mean = x.sum(1, keepdim=True) / count
        weighed = x - mean
    else:
        total = weights.sum()
        lost = correction if aweights is None else correction * (weights * aweights).sum() / total
        share = (total - lost).clamp(min=0) if correction else total
        mean = (x * weights).sum(1, keepdim=True) / total
        weighed = (x - mean) * weights
    return ((x - mean) @ weighed.transpose(0, 1).conj() / share).squeeze()


def corrcoef(input: Any) -> torch.Tensor:
    """What ``torch.corrcoef`` gives.

    Parameters
    ----------
    input : torch.Tensor
        A row for each variable; all of one, where it is a vector.

    Returns
    -------
    torch.Tensor
        From -1 to 1.

    Examples
    --------
    >>> corrcoef(torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    found = cov(input)
    if found.ndim == 0:
        return found / found
    spread = found.diagonal().real.sqrt()
    found = found / spread[:, None] / spread[None, :]
    if found.is_complex():
        return torch.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))
    return found.clamp(-1, 1)
