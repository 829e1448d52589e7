"""What factors of matrices are compared by, where nobody fixes the signs of their vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


def in_what_is_unique(operator: str, results: Sequence[Any]) -> list[Any]:
    """Results of an operator, without what another one may choose as it likes.

    Parameters
    ----------
    operator : str
        As PyTorch's lists have it.
    results : sequence
        Of whoever computed it.

    Returns
    -------
    list
        Values, the matrix that the factors make, and the angles between their vectors; of other
        operators what was given.
    """
    unique = _UNIQUE.get(operator)
    if unique is None:
        return list(results)
    found = [torch.as_tensor(np.array(x)) for x in results]
    # Vectors that nobody asked for have no elements.
    return unique(*found) if found[-1].numel() else list(found)


def _singular(u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> list[torch.Tensor]:
    count = s.shape[-1]
    product = (u[..., :count] * s.unsqueeze(-2)) @ vh[..., :count, :]
    return [s, product, u.mT @ u, vh @ vh.mT]


def _symmetric(values: torch.Tensor, vectors: torch.Tensor) -> list[torch.Tensor]:
    product = (vectors * values.unsqueeze(-2)) @ vectors.mT
    return [values, product, vectors.mT @ vectors]


_UNIQUE: dict[str, Callable[..., list[torch.Tensor]]] = {
    "svd": lambda u, s, v: _singular(u, s, v.mT),
    "linalg.svd": _singular,
    "linalg.eigh": _symmetric,
}
