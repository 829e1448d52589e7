"""The node cases of the ``onnx`` wheel, as models that can be optimized.

A case gives everything as inputs. What decides shapes (axes, sizes, repeats) becomes an initializer
here: only static shapes can be optimized. What is data stays an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

Array = NDArray[Any]

_EVERY = tuple(range(8))

_DECIDES: dict[str, Sequence[int]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": _EVERY,
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": _EVERY,
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""By operator, the inputs that decide shapes; of all reductions, the second."""


@dataclass(frozen=True)
class Case:
    """A model, what it is given, and what it has to answer.

    Attributes
    ----------
    name : str
        The standard's, without ``test_``.
    operator : str
        What is tested; of a case that spells it out, the operator that it spells out.
    model : onnx.ModelProto
        With what decides shapes as initializers.
    inputs, outputs : list
        In the graph's order: arrays, or what else ONNX knows (sequences, nothing).
    rtol, atol : float
        The standard's own tolerance.
    """

    name: str
    operator: str
    model: onnx.ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float

    @property
    def dtypes(self) -> set[str]:
        """The element types of everything that goes in and comes out."""
        return {
            str(x.dtype) if isinstance(x, np.ndarray | np.generic) else type(x).__name__
            for x in [*self.inputs, *self.outputs]
        }

    @property
    def has_float32(self) -> bool:
        """Whether it computes with float32, and with no other floating-point type."""
        floats = {name for name in self.dtypes if "float" in name}
        only_arrays = all(
            isinstance(x, np.ndarray | np.generic) for x in [*self.inputs, *self.outputs]
        )
        return floats == {"float32"} and only_arrays and "object" not in self.dtypes


@cache
def cases() -> dict[str, Case]:
    """Every node case, by name."""
    tests = [test for test in load_model_tests(kind="node") if test.model is not None]
    nodes = {test.name: test.model.graph.node[0] for test in tests}
    found = {}
    for test in tests:
        # What a case that spells an operator out has as its inputs, the operator's case tells.
        case = _case(test, nodes.get(test.name.split("_expanded")[0], nodes[test.name]))
        found[case.name] = case
    return found


def _case(test: Any, node: onnx.NodeProto) -> Case:
    operator = node.op_type
    given, wanted = test.data_sets[0]
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    values = [_array(x) for x in given]
    bound = _DECIDES.get(operator, (1,) if operator.startswith("Reduce") else ())
    names = {name for index, name in enumerate(node.input) if index in bound}
    inputs = []
    for value, array in zip(list(model.graph.input), values, strict=True):
        if value.name in names and isinstance(array, np.ndarray | np.generic):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
            model.graph.input.remove(value)
        else:
            inputs.append(array)
    name = test.name.removeprefix("test_")
    outputs = [_array(x) for x in wanted]
    return Case(name, operator, model, inputs, outputs, float(test.rtol), float(test.atol))


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
