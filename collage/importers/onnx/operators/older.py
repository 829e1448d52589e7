"""What older operator sets give as attributes, and later ones and our converters as inputs.

TVM's converters of the operators that are not named here know both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input

from collage.importers.onnx.operators.node import Inputs, fixed_tensor

_MOVED: dict[str, tuple[int, list[tuple[str, str]]]] = {
    "Slice": (10, [("starts", "int64"), ("ends", "int64"), ("axes", "int64")]),
    "TopK": (10, [("k", "int64")]),
    "Upsample": (9, [("scales", "float32")]),
}
"""By operator, the first set with inputs, and what those behind the data were, of which type."""


def with_inputs(operator: str, inputs: Inputs, attributes: dict[str, Any], opset: int) -> Inputs:
    """A node's inputs, with those that its operator set gives as attributes.

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
        The same where nothing was an attribute.
    """
    since, moved = _MOVED.get(operator, (0, []))
    if opset >= since:
        return inputs
    given = [(attributes.get(name), dtype) for name, dtype in moved]
    added = [None if x is None else fixed_tensor(np.asarray(x, dtype)) for x, dtype in given]
    # TVM's own kind of list: it answers None behind its end.
    found: Inputs = onnx_input([*inputs, *added])
    return found
