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


_DRAWS = "it draws random numbers"
_DROPS = (
    "it drops elements at random, as in training; call model.eval() before torch.export.export, "
    "and write F.dropout(x, p, training=self.training), which drops in every mode without"
)


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
        return _DROPS if drops(node) else f"{_DRAWS}; give them to the network as an input"
    if _REASONS.get(name):
        return _REASONS[name]
    if name.startswith(("linalg_", "_linalg_")):
        return _FACTORS
    if name.startswith(("special_", "bessel_", "spherical_", "zeta")):
        return _SPECIAL
    return "there is no converter for it, and PyTorch does not take it apart"


def drops(node: fx.Node) -> bool:
    """Whether an operator leaves out elements at random, as in training.

    Examples
    --------
    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> ways = [(x, 0.5, True), (x, 0.5, False), (x, 0.0, True)]
    >>> [drops(graph.call_function(torch.ops.aten.dropout.default, way)) for way in ways]
    [True, False, False]
    """
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    named = zip(node.target._schema.arguments, node.args, strict=False)
    given = {parameter.name: value for parameter, value in named} | dict(node.kwargs)
    share = given.get("dropout_p", given.get("p", 0.0) if given.get("train") else 0.0)
    return isinstance(share, float) and share > 0
