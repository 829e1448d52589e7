"""Medians and modes in terms of sorted rows."""

from __future__ import annotations

import math

import torch


def median_of_numbers(
    x: torch.Tensor, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower one of those that are numbers; sorted, the others come last.

    Parameters
    ----------
    x : torch.Tensor
        Of any shape.
    dim : int
        The rows' axis.
    keepdim : bool
        Whether it stays, with an extent of 1.

    Returns
    -------
    tuple of torch.Tensor
        The numbers, and their places as int64.
    """
    if not x.dim():
        return x.clone(), torch.zeros([], dtype=torch.int64)
    count = (~torch.isnan(x)).sum(dim, keepdim=True)
    if x.is_floating_point():
        x = torch.where(torch.isnan(x), math.inf, x)
    ordered, places = torch.sort(x, dim)
    middle = ((count - 1).clamp(min=0)) // 2
    found, place = ordered.gather(dim, middle), places.gather(dim, middle)
    if x.is_floating_point():
        found = torch.where(count == 0, math.nan, found)
    return (found, place) if keepdim else (found.squeeze(dim), place.squeeze(dim))


def median_of_all_numbers(x: torch.Tensor) -> torch.Tensor:
    """As :func:`median_of_numbers`, of all elements.

    Parameters
    ----------
    x : torch.Tensor
        Of any shape.

    Returns
    -------
    torch.Tensor
        Without axes.
    """
    return median_of_numbers(x.reshape(-1), 0)[0]


def median(
    x: torch.Tensor, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower one of those in the middle; the first that is no number, where there is one.

    Parameters
    ----------
    x : torch.Tensor
        Of any shape.
    dim : int
        The rows' axis.
    keepdim : bool
        Whether it stays, with an extent of 1.

    Returns
    -------
    tuple of torch.Tensor
        The numbers, and their places as int64.
    """
    if not x.dim():
        return x.clone(), torch.zeros([], dtype=torch.int64)
    ordered, places = torch.sort(x, dim)
    middle = (x.shape[dim] - 1) // 2
    found, place = ordered.narrow(dim, middle, 1), places.narrow(dim, middle, 1)
    if x.is_floating_point():
        none = torch.isnan(x)
        missing = none.any(dim, keepdim=True)
        found = torch.where(missing, math.nan, found)
        place = torch.where(missing, none.to(torch.int64).argmax(dim, keepdim=True), place)
    return (found, place) if keepdim else (found.squeeze(dim), place.squeeze(dim))


def median_of_all(x: torch.Tensor) -> torch.Tensor:
    """As :func:`median`, of all elements.

    Parameters
    ----------
    x : torch.Tensor
        Of any shape.

    Returns
    -------
    torch.Tensor
        Without axes.
    """
    return median(x.reshape(-1), 0)[0]


def mode(
    x: torch.Tensor, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest of the most frequent values, and where it stands last.

    Parameters
    ----------
    x : torch.Tensor
        Of any shape.
    dim : int
        The rows' axis.
    keepdim : bool
        Whether it stays, with an extent of 1.

    Returns
    -------
    tuple of torch.Tensor
        The numbers, and their places as int64.
    """
    if not x.dim():
        return x.clone(), torch.zeros([], dtype=torch.int64)
    moved = x.movedim(dim, -1)
    ordered, _ = torch.sort(moved, -1)
    # Runs of equal values by number, and how long each is; the first of the longest is wanted.
    fresh = ordered[..., 1:] != ordered[..., :-1]
    run = torch.nn.functional.pad(fresh.to(torch.int64).cumsum(-1), (1, 0))
    times = torch.zeros_like(run).scatter_add(-1, run, torch.ones_like(run))
    longest = times.argmax(-1, keepdim=True)
    first = (run == longest).to(torch.int64).argmax(-1, keepdim=True)
    found = ordered.gather(-1, first)
    numbers = torch.arange(moved.shape[-1])
    place = torch.where(moved == found, numbers, -1).amax(-1, keepdim=True)
    found, place = found.movedim(-1, dim), place.movedim(-1, dim)
    return (found, place) if keepdim else (found.squeeze(dim), place.squeeze(dim))
