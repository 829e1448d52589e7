"""What a converter raises, and why there is none for some operators."""

from __future__ import annotations

import torch
from torch import fx

_ROWS = "the shape of its result depends on data"
_FACTORS = "a decomposition of a matrix by a library that no backend has"
_BINS = f"{_ROWS}, the largest value; torch.histc has as many bins as it is told"
_SPECIAL = "a special function that no backend computes"

_REASONS = {
    **dict.fromkeys(["nonzero", "nonzero_static", "masked_select", "_unique", "_unique2"], _ROWS),
    "bincount": _BINS,
    **dict.fromkeys(["unique_dim", "unique_consecutive", "repeat_interleave"], _ROWS),
}


class RefusedError(Exception):
    """A node that cannot be imported; the message says why."""


def reason_of(node: fx.Node) -> str:
    """Why nothing converts an operator, as far as it is known.

    Examples
    --------
    >>> reason_of(fx.Graph().call_function(torch.ops.aten.nonzero.default))
    'the shape of its result depends on data'
    """
    name = node.target.__name__.split(".")[0]
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return "it draws random numbers; give them to the network as an input"
    if _REASONS.get(name):
        return _REASONS[name]
    if name.startswith(("linalg_", "_linalg_")):
        return _FACTORS
    if name.startswith(("special_", "bessel_", "spherical_", "zeta")):
        return _SPECIAL
    return "there is no converter for it, and PyTorch does not take it apart"
