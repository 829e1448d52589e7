"""What older operator sets write otherwise than later ones and our converters read it.

Inputs that were attributes once, and inputs that are left out by tensors without elements. TVM's
converters of the operators that are not named here know both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input

from collage.importers.onnx.operators.node import Inputs, constant_of, fixed_tensor

_MOVED: dict[str, tuple[int, list[tuple[str, str]]]] = {
    "Slice": (10, [("starts", "int64"), ("ends", "int64"), ("axes", "int64")]),
    "TopK": (10, [("k", "int64")]),
    "Upsample": (9, [("scales", "float32")]),
}
"""By operator, the first set with inputs, and what those behind the data were, of which type."""

_EMPTY_WHEN_LEFT_OUT = ("Resize",)
"""Until set 13 its regions and scales have to be there, and are empty where they do not count."""


def with_inputs(operator: str, inputs: Inputs, attributes: dict[str, Any], opset: int) -> Inputs:
    """A node's inputs as the newest operator set has them.

    Parameters
    ----------
    operator : str
        Of the standard.
    inputs : sequence of relax.Expr or None
        As they stand in the graph.
    attributes : dict
        As TVM's importer parses them.
    opset : int
        The operator set of the model.

    Returns
    -------
    Inputs
        The same where nothing was an attribute, or left out by a tensor without elements.
    """
    if operator in _EMPTY_WHEN_LEFT_OUT:
        # TVM's own kind of list: it answers None behind its end.
        left: Inputs = onnx_input([None if _is_empty(x) else x for x in inputs])
        return left
    since, moved = _MOVED.get(operator, (0, []))
    if opset >= since:
        return inputs
    given = [(attributes.get(name), dtype) for name, dtype in moved]
    added = [None if x is None else fixed_tensor(np.asarray(x, dtype)) for x, dtype in given]
    found: Inputs = onnx_input([*inputs, *added])
    return found


def _is_empty(given: relax.Expr | None) -> bool:
    value = constant_of(given)
    return value is not None and value.shape == (0,)
