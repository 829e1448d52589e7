"""A graph that is written node by node: what is known of it is not written, but kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from collage.importers.onnx.functions import copy_under
from collage.importers.onnx.known import Known


@dataclass
class Line:
    """Nodes one after the other.

    Attributes
    ----------
    model : onnx.ModelProto
        What they are of.
    prefix : str
        Before the names that are new.
    nodes : list of onnx.NodeProto
        What has to be computed.
    selected : list
        Pairs of values of which one is chosen, and the node that asks for it.
    known : Known
        What has not to be computed.
    """

    model: onnx.ModelProto
    prefix: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    selected: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known = Known(self.model)
        self._count = 0
        versions = [o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")]
        self._opset = int(versions[0]) if versions else 1

    def add(self, node: onnx.NodeProto, *, expand: bool = True) -> None:
        """Write a node.

        Parameters
        ----------
        node : onnx.NodeProto
            All that it reads is written already, or known.
        expand : bool
            Whether its body is written in its place, if it has one.

        Raises
        ------
        NotImplementedError
            Where nobody says how.
        """
        raise NotImplementedError

    def _emit(self, op_type: str, inputs: Sequence[str], **attributes: object) -> str:
        output = self._fresh(op_type.lower())
        self.add(helper.make_node(op_type, list(inputs), [output], name=output, **attributes))
        return output

    def _fresh(self, what: str) -> str:
        self._count += 1
        return f"{self.prefix}{what}_{self._count}"

    def _constant(self, value: object, dtype: str) -> str:
        name = self._fresh("constant")
        self.known.values[name] = np.asarray(value, dtype)
        return name

    def _bind(self, output: str, value: str) -> None:
        if output:
            self.add(helper.make_node("Identity", [value], [output], name=output))

    def _select(self, condition: str, first: str, second: str, label: str) -> str:
        if first == second:
            return first
        self.selected.append((first, second, label))
        return self._emit("Where", [condition, first, second])

    def _scalar(self, condition: str) -> str:
        if self.known.shapes.get(condition) == ():
            return condition
        return self._emit("Reshape", [condition, self._constant([], "int64")])

    def _along(self, value: str, axis: int) -> str:
        """A value with one more axis of extent 1."""
        if self._opset < 13:
            return self._emit("Unsqueeze", [value], axes=[axis])
        return self._emit("Unsqueeze", [value, self._constant([axis], "int64")])

    def _inline(self, graph: onnx.GraphProto, arguments: Sequence[str]) -> list[str]:
        """The body of a node, written for these arguments; the names of its results."""
        self._count += 1
        prefix = f"{self.prefix}{self._count}_"
        names = {v.name: a for v, a in zip(graph.input, arguments, strict=True)}
        for tensor in graph.initializer:
            names[tensor.name] = prefix + tensor.name
            self.known.values[prefix + tensor.name] = onnx.numpy_helper.to_array(tensor)
        for node in graph.node:
            names.update((name, prefix + name) for name in node.output if name)
        for node in graph.node:
            self.add(copy_under(node, names, prefix), expand=False)
        return [names.get(value.name, value.name) for value in graph.output]
