"""Constants of the bodies of If, Loop and Scan as constants of the whole model.

A body is written anew for every trip of its loop. Weights that stood in it would be, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import deepcopy

import onnx

from collage.importers.onnx.functions import graphs_of, rename_inputs
from collage.importers.onnx.support import tensor_bytes

_SMALL_BYTES = 1024
"""Below this a copy costs nothing, and shapes inside a body are inferred from it."""


def lift_constants(graph: onnx.GraphProto, taken: Collection[str]) -> list[onnx.TensorProto]:
    """Take the weights out of every body in a graph, at any depth.

    Parameters
    ----------
    graph : onnx.GraphProto
        Changed in place: what stood in a body is read from outside under a new name.
    taken : collection of str
        Names that values have outside of it.

    Returns
    -------
    list of onnx.TensorProto
        What the graph lacks now: initializers under those names.
    """
    lifted: list[onnx.TensorProto] = []
    if any(graphs_of(node) for node in graph.node):
        known = {*taken, *_names(graph)}
        for body in _bodies(graph):
            found = dict(_taken_out(body))
            names = {}
            for name, tensor in found.items():
                tensor.name = next(
                    fresh for n in range(len(known) + 1) if (fresh := f"{name}.{n}") not in known
                )
                known.add(tensor.name)
                names[name] = tensor.name
            for node in body.node:
                rename_inputs(node, names)
            for value in body.output:
                value.name = names.get(value.name, value.name)
            lifted += found.values()
    return lifted


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for body in graphs_of(node):
            yield body
            yield from _bodies(body)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Every name that a value has, in a graph or in a body of it."""
    for part in (graph, *_bodies(graph)):
        yield from (tensor.name for tensor in part.initializer)
        yield from (value.name for value in part.input)
        for node in part.node:
            yield from node.output


def _taken_out(body: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """The weights of one body by name, copied; they no longer stand there."""
    given = {value.name for value in body.input}
    kept = []
    for tensor in body.initializer:
        if tensor_bytes(tensor) < _SMALL_BYTES or tensor.name in given:
            kept.append(tensor)
        else:
            yield tensor.name, deepcopy(tensor)
    left = []
    for node in body.node:
        value = next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)
        if node.op_type == "Constant" and value and tensor_bytes(value) >= _SMALL_BYTES:
            yield node.output[0], deepcopy(value)
        else:
            left.append(node)
    for field, rest in ((body.initializer, kept), (body.node, left)):
        if len(rest) < len(field):
            copies = [deepcopy(x) for x in rest]
            del field[:]
            field.extend(copies)
