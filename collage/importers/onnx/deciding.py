"""What a model decides by how many rows data choose is refused: they are the most there, always.

The same graph is looked at twice, as it is and with room for one row more. What it knows before it
runs may depend on that number, as shapes do; it must not be the same for both where it is not for
fewer rows. So whatever is computed from a number that differs has to differ in step with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from collage.backends.contract.errors import ModelError
from collage.importers.onnx.known import Known
from collage.importers.onnx.support import node_label

Array = NDArray[Any]
_Pair = tuple[Array, Array]

_IN_STEP: dict[str, Sequence[int]] = {
    **dict.fromkeys(["Add", "Mul", "Neg", "Sub"], (0, 1)),
    **dict.fromkeys(["ConstantOfShape", "Identity", "Shape", "Size", "Transpose"], (0,)),
    **dict.fromkeys(["Flatten", "Gather", "Slice", "Squeeze", "Unsqueeze"], (0,)),
    **dict.fromkeys(["ReduceProd", "ReduceSum"], (0,)),
    **dict.fromkeys(["Expand", "Reshape", "Tile"], (0, 1)),
    "Concat": range(1 << 10),
    "Where": (1, 2),
}
"""Operators whose result is another one for every other number, and the operands that may be."""

_ROUNDING = ("Cast", "Ceil", "Floor", "Round")


def require_undecided(
    label: str,
    model: onnx.ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    more: Mapping[str, tuple[int, ...]],
) -> None:
    """Refuse a model that decides by how many rows there are.

    Parameters
    ----------
    label : str
        What chooses the rows.
    model : onnx.ModelProto
        Without control flow by what is known.
    shapes, more : mapping of str to tuple of int
        Of its values, as it is and with room for one row more.

    Raises
    ------
    ModelError
        Names the node that decides.
    """
    one, two = Known(model, shapes), Known(model, more)
    for node in model.graph.node:
        learned = one.learn(node) and two.learn(node)
        operands = [(one.values.get(name), two.values.get(name)) for name in node.input]
        known = [None if a is None or b is None else (a, b) for a, b in operands]
        results = [(one.values[n], two.values[n]) for n in node.output if n] if learned else []
        # It takes as many rows as its condition says, or all where there are fewer.
        cuts = node.op_type == "Compress" and shapes.get(node.input[0]) != more.get(node.input[0])
        if cuts or _decides(node.op_type, known) or _loses_rows(node.op_type, known, results):
            raise ModelError(
                f"{label} chooses as many rows as the data say, and {node_label(node)} "
                f"({node.op_type}) decides by how many they are. Cut the model there, with "
                "onnx.utils.extract_model, and compute the rest outside",
                value=label,
            )


def _decides(operator: str, operands: Sequence[_Pair | None]) -> bool:
    """Whether a result may be the same for another number that is an operand, or part of one."""
    differing = [place for place, pair in enumerate(operands) if pair and _differ(*pair)]
    allowed = _IN_STEP.get(operator, ())
    if all(place in allowed for place in differing):
        return False
    pairs = [pair for pair in operands if pair]
    if operator in _ROUNDING:
        return not all(map(_is_whole, pairs[0]))
    if operator == "Range" and len(pairs) == 3:
        return any(abs(step) != 1 for step in pairs[2])
    if operator == "Div" and len(pairs) == 2:
        return not all(map(_is_exact, *pairs))
    return operator != "Equal" or len(pairs) != 2 or not _is_never_equal(*pairs)


def _loses_rows(operator: str, operands: Sequence[_Pair | None], results: Sequence[_Pair]) -> bool:
    """Whether one operand has a row more, and no result has."""
    longer = any(pair and pair[0].shape != pair[1].shape for pair in operands)
    kept = operator in ("Shape", "Size") or any(a.shape != b.shape for a, b in results)
    return longer and bool(results) and not kept


def _differ(one: Array, two: Array) -> bool:
    """Whether values are others as far as both have rows."""
    if one.ndim != two.ndim:
        return True
    common = tuple(slice(min(pair)) for pair in zip(one.shape, two.shape, strict=True))
    return not np.array_equal(one[common], two[common])


def _is_whole(value: Array) -> bool:
    """Whether nothing is lost where a value becomes whole numbers."""
    return bool(np.all(value == np.floor(value)))


def _is_exact(value: Array, by: Array) -> bool:
    """Whether nothing is lost in a quotient."""
    return value.dtype.kind == "f" or bool(np.all(by) and not np.any(value % by))


def _is_never_equal(left: _Pair, right: _Pair) -> bool:
    """Whether numbers of rows stand beside ones below zero, as where shapes are expanded."""
    if left[0].shape != left[1].shape or right[0].shape != right[1].shape:
        return False
    differ = (left[0] != left[1]) | (right[0] != right[1])
    low = np.minimum(np.minimum(*left), np.minimum(*right))
    return bool((low < 0)[differ].all())
