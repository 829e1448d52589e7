"""Chains of nodes that onnxruntime has an operator for, which it does not find by itself.

Modules have one form of each chain, which need not be the one that its own fusions look for. What
it is told by name it joins with what is around, as convolutions with their activations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

_SLOPE, _OFFSET = 1 / 6, 0.5
"""Of ONNX's ``HardSwish``."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of a model, and what is known of its values.

    Attributes
    ----------
    nodes : list of onnx.NodeProto
        In an order in which they can be run.
    numbers : mapping of str to array
        Small constants, by name.
    shapes : mapping of str to tuple of int
        Of values, by name.
    outputs : sequence of str
        Of the model.

    Examples
    --------
    >>> relu = helper.make_node("Relu", ["i0"], ["o0"])
    >>> Nodes([relu], {}, {}, ["o0"]).maker("o0", "Relu").input[0]
    'i0'
    """

    nodes: list[onnx.NodeProto]
    numbers: Mapping[str, NDArray[np.generic]]
    shapes: Mapping[str, tuple[int, ...]]
    outputs: Sequence[str]
    _makers: Mapping[str, onnx.NodeProto] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        makers = {value: node for node in self.nodes for value in node.output}
        object.__setattr__(self, "_makers", makers)

    def maker(self, value: str, kind: str) -> onnx.NodeProto | None:
        """The node that makes a value.

        Parameters
        ----------
        value : str
            Its name.
        kind : str
            Of ONNX's own operators.

        Returns
        -------
        onnx.NodeProto or None
            None where it is of another kind, or the value an input or a constant.
        """
        node = self._makers.get(value)
        return node if node is not None and (node.op_type, node.domain) == (kind, "") else None

    def with_number(self, node: onnx.NodeProto) -> tuple[str, float] | None:
        """The other operand, and the number, of a node that joins a value with a number.

        Parameters
        ----------
        node : onnx.NodeProto
            Of two operands, whose order does not matter.

        Returns
        -------
        tuple of str and float, or None
            None where the number is several, or widens the value.
        """
        for value, constant in (node.input, node.input[::-1]):
            number = self.numbers.get(constant)
            known = self.shapes.get(value)
            if number is not None and number.size == 1 and value not in self.numbers:
                same = known is not None and known == self.shapes.get(node.output[0])
                return (value, float(number.reshape(()))) if same else None
        return None


def simplify(model: Nodes) -> list[onnx.NodeProto]:
    """The nodes with chains replaced, and without those that nobody reads any more.

    Parameters
    ----------
    model : Nodes
        As it was written; its nodes are changed.

    Returns
    -------
    list of onnx.NodeProto
        In the order in which they were.

    Examples
    --------
    >>> chain = [
    ...     helper.make_node("Mul", ["i0", "a"], ["p"]),
    ...     helper.make_node("Add", ["p", "b"], ["s"]),
    ...     helper.make_node("Clip", ["s", "low", "high"], ["o0"]),
    ... ]
    >>> numbers = {"a": 0.2, "b": 0.5, "low": 0.0, "high": 1.0}
    >>> arrays = {name: np.array(value, np.float32) for name, value in numbers.items()}
    >>> model = Nodes(chain, arrays, dict.fromkeys(["i0", "p", "s"], (8,)), ["o0"])
    >>> [node.op_type for node in simplify(model)]
    ['HardSigmoid']
    """
    for node in model.nodes:
        for rule in _RULES:
            made = rule(model, node)
            if made is not None:
                node.CopyFrom(made)
    return _read(model)


def _read(model: Nodes) -> list[onnx.NodeProto]:
    """The nodes that the outputs depend on."""
    wanted = set(model.outputs)
    kept: list[onnx.NodeProto] = []
    for node in reversed(model.nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]


def _hard_sigmoid(model: Nodes, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """``clip(x * a + b, 0, 1)``."""
    if node.op_type != "Clip" or [_number(model, bound) for bound in node.input[1:]] != [0.0, 1.0]:
        return None
    add = model.maker(node.input[0], "Add")
    line = model.with_number(add) if add is not None else None
    product = model.maker(line[0], "Mul") if line is not None else None
    scaled = model.with_number(product) if product is not None else None
    if line is None or scaled is None:
        return None
    return _made("HardSigmoid", scaled[0], node, alpha=scaled[1], beta=line[1])


def _hard_swish(model: Nodes, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """``x * hard_sigmoid(x)`` with the one slope and offset that there are."""
    if node.op_type != "Mul":
        return None
    for x, gate in (node.input, node.input[::-1]):
        hard = model.maker(gate, "HardSigmoid")
        if hard is None or hard.input[0] != x:
            continue
        line = {entry.name: entry.f for entry in hard.attribute}
        if math.isclose(line["alpha"], _SLOPE, rel_tol=1e-7) and line["beta"] == _OFFSET:
            return _made("HardSwish", x, node)
    return None


def _number(model: Nodes, value: str) -> float | None:
    number = model.numbers.get(value)
    return float(number.reshape(())) if number is not None and number.size == 1 else None


def _made(kind: str, x: str, instead_of: onnx.NodeProto, **attributes: float) -> onnx.NodeProto:
    return helper.make_node(kind, [x], list(instead_of.output), instead_of.name, **attributes)


_RULES: Sequence[Callable[[Nodes, onnx.NodeProto], onnx.NodeProto | None]] = (
    _hard_sigmoid,
    _hard_swish,
)
