"""What is known of the values of a graph that is being cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage.importers.courses.values import Value
from collage.importers.onnx.functions import rename_inputs
from collage.importers.onnx.support import node_label


def declared(value: Value, name: str) -> onnx.ValueInfoProto:
    """A value as a graph declares it.

    Parameters
    ----------
    value : Value
        Of numbers alone.
    name : str
        What it is called.

    Returns
    -------
    onnx.ValueInfoProto
        With its type and shape.
    """
    element = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_value_info(name, element, list(value.shape))


Scope = dict[str, Value]
"""What is there, by name."""


@dataclass
class Constants:
    """Values that are known before the model runs, by name."""

    tensors: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def array(self, name: str) -> np.ndarray | None:
        """What a value is, if it is known."""
        tensor = self.tensors.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def add(self, name: str, value: np.ndarray) -> str:
        """Know a value from now on.

        Parameters
        ----------
        name : str
            What it is called.
        value : numpy.ndarray
            What it is.

        Returns
        -------
        str
            The name.
        """
        whole = np.ascontiguousarray(value).reshape(value.shape)
        self.tensors[name] = numpy_helper.from_array(whole, name)
        return name

    def value(self, name: str) -> Value:
        """Its shape and dtype."""
        tensor = self.tensors[name]
        dtype = str(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        return Value(tuple(int(dim) for dim in tensor.dims), dtype)


def body_under(graph: onnx.GraphProto, prefix: str) -> onnx.GraphProto:
    """A copy of a body whose own values have names that no other's have.

    Parameters
    ----------
    graph : onnx.GraphProto
        The body.
    prefix : str
        Before every name.

    Returns
    -------
    onnx.GraphProto
        What it reads from outside has the names that it had.
    """
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    own = [value.name for value in copy.input] + [tensor.name for tensor in copy.initializer]
    own += [name for node in copy.node for name in node.output if name]
    names = {name: prefix + name for name in own}
    for node in copy.node:
        node.name = prefix + node_label(node)
        rename_inputs(node, names)
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in [*copy.input, *copy.output]:
        value.name = names.get(value.name, value.name)
    for tensor in copy.initializer:
        tensor.name = names[tensor.name]
    return copy


def renamed(nodes: Iterable[onnx.NodeProto], names: dict[str, str]) -> list[onnx.NodeProto]:
    """Copies of nodes that read other values in place of some.

    Parameters
    ----------
    nodes : iterable of onnx.NodeProto
        Not changed.
    names : dict of str to str
        New names by old ones.

    Returns
    -------
    list of onnx.NodeProto
        In order.
    """
    found = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        rename_inputs(copy, names)
        found.append(copy)
    return found


def graph_attribute(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    """A body of a node.

    Parameters
    ----------
    node : onnx.NodeProto
        With that attribute.
    name : str
        The attribute's.

    Returns
    -------
    onnx.GraphProto
        Not a copy.
    """
    (found,) = (a.g for a in node.attribute if a.name == name)
    return found


def body_results(graph: onnx.GraphProto) -> Sequence[str]:
    """The values that a body gives."""
    return [value.name for value in graph.output]
