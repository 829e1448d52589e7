"""What a converter raises, and why there is none for some operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from collage.importers.torch.exporting.reasons import quantization_not_done

_ROWS = "the shape of its result depends on data"
_FACTORS = "a decomposition of a matrix by a library that no backend has"
_BINS = (
    f"{_ROWS}, the largest value; give minlength, one more than that can be, from which on values "
    "are not counted"
)
_SPECIAL = "a special function that no backend computes"
_OF_DEGREE = "a polynomial whose degree is a tensor; give it as a number"

_REASONS = {
    **dict.fromkeys(["nonzero", "nonzero_static", "masked_select", "_unique", "_unique2"], _ROWS),
    "bincount": _BINS,
    **dict.fromkeys(["unique_dim", "unique_consecutive", "repeat_interleave"], _ROWS),
}


_DRAWS = "it draws random numbers; give them to the network as an input"
_OF_PYTORCH = ("aten", "prims", "prim", "collage")
_OWN = (
    "is an operator of its own (torch.library), of which only its library knows what it computes; "
    "write it with PyTorch's operators, or register that as its CompositeImplicitAutograd"
)
EVALUATE = "call model.eval() before it is exported, or called where torch.compile compiles it"
"""What to do about what is done in training alone."""
NORMS_BY_BATCH = (
    "normalizes by the batch that it is given and keeps statistics of it, as batch norms do in "
    f"training; {EVALUATE}"
)
SPARSE = (
    "it computes with sparse tensors in other ways than products, sums and changes of form; make "
    "them dense before (to_dense()), or add up rows (index_add)"
)
SPARSE_CONSTANT = (
    "it holds a sparse tensor; give it dense (to_dense()), or register it (register_buffer)"
)
_DERIVATIVE = (
    "a derivative that is not known; write what is differentiated in other operators, or leave the "
    "derivative out of the model"
)
_QUANTIZING = quantization_not_done("it")
_DROPS = (
    f"it drops elements at random, as in training; {EVALUATE}, and write "
    "F.dropout(x, p, training=self.training), which drops in every mode without"
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
    if drops(node):
        return _DROPS
    if draws(node):
        return _DRAWS
    if node.target.__name__.startswith("auto_functionalized"):
        return f"'{_written(node.args[0])}' {_OWN}"
    name = node.target.__name__.split(".")[0]
    if getattr(node.target, "namespace", "aten") not in _OF_PYTORCH:
        return f"'{_written(node.target)}' {_OWN}"
    if _REASONS.get(name):
        return _REASONS[name]
    if "moving_avg_obs_fq_helper" in name:
        return _QUANTIZING
    if name.endswith("_backward"):
        return _DERIVATIVE
    if "sparse" in name:
        return SPARSE
    if name.startswith(("linalg_", "_linalg_")):
        return _FACTORS
    if "_polynomial_" in name:
        return _OF_DEGREE
    if name.startswith(("special_", "bessel_", "spherical_", "zeta")):
        return _SPECIAL
    return "there is no converter for it, and PyTorch does not take it apart"


def shape_depends(node: fx.Node) -> str:
    """What is said of a result whose shape is known only while the program runs.

    Examples
    --------
    >>> shape_depends(fx.Graph().call_function(torch.ops.aten.nonzero.default))
    'the shape of its result depends on data'
    """
    return _REASONS.get(node.target.__name__.split(".")[0], _ROWS)


def _written(operator: Any) -> str:
    """An operator as it was registered, ``library::name``."""
    return str(operator._schema.name)


def draws(node: fx.Node) -> bool:
    """Whether an operator gives other numbers at each call.

    Examples
    --------
    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> aten = torch.ops.aten
    >>> draws(graph.call_function(aten.randn_like.default, (x,)))
    True
    >>> draws(graph.call_function(aten.dropout.default, (x, 0.5, False)))
    False
    """
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = _given(node)
    if "training" in given:
        return bool(given["training"])
    return not given.keys() & {"train", "dropout_p"}


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
    given = _given(node)
    share = given.get("dropout_p", given.get("p", 0.0) if given.get("train") else 0.0)
    return isinstance(share, float) and share > 0


def _given(node: fx.Node) -> dict[str, Any]:
    """A node's arguments by their names; defaults filled in."""
    parameters = node.target._schema.arguments
    known = {one.name: one.default_value for one in parameters if one.has_default_value()}
    named = zip(parameters, node.args, strict=False)
    return known | {parameter.name: value for parameter, value in named} | dict(node.kwargs)
