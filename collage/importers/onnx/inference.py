"""ONNX's own inference of types and shapes, kept from what it does not survive.

For a few operators it looks at the type of the first input without asking whether there is one:
where a model's own operator, or an old ensemble of trees, made that input, the process dies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import onnx

_UNCHECKED = frozenset({"LabelEncoder", "DictVectorizer", "RegexFullMatch"})
"""Operators whose inference needs a type to be known: all of the standard's were tried."""

_HIDDEN = "Hidden"


def infer_shapes(
    model: onnx.ModelProto,
    *,
    check_type: bool = False,
    strict_mode: bool = False,
    data_prop: bool = False,
) -> onnx.GraphProto:
    """What ``onnx.shape_inference.infer_shapes`` finds, for any model.

    Parameters
    ----------
    model : onnx.ModelProto
        Left as it is.
    check_type, strict_mode, data_prop : bool
        As there.

    Returns
    -------
    onnx.GraphProto
        With what was found in ``value_info``.

    Raises
    ------
    onnx.shape_inference.InferenceError
        As there.
    ValueError
        For a model of more than 2 GB.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 20, "own" : 1]>
    ...     net (float[2] x) => (bool[N] y) {
    ...         text = own.Spelled(x)
    ...         y = RegexFullMatch <pattern = "a"> (text)
    ...     }'''
    ... )
    >>> infer_shapes(model).output[0].name
    'y'
    """
    hidden = [node for node in _nodes(model) if node.op_type in _UNCHECKED]
    while True:
        with _out_of_sight(hidden):
            found = onnx.shape_inference.infer_shapes(
                model, check_type=check_type, strict_mode=strict_mode, data_prop=data_prop
            )
        typed = _typed(found)
        still = [node for node in hidden if not typed.intersection(node.input[:1])]
        if len(still) == len(hidden):
            return found.graph
        hidden = still


@contextmanager
def _out_of_sight(nodes: Iterable[onnx.NodeProto]) -> Iterator[None]:
    """Nodes as those of types that inference does not know, which it passes over."""
    types = [(node, node.op_type) for node in nodes]
    for node, _ in types:
        node.op_type = _HIDDEN
    try:
        yield
    finally:
        for node, op_type in types:
            node.op_type = op_type


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in _graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        for node in function.node:
            yield node
            for inner in _bodies(node):
                yield from (n for graph in _graphs(inner) for n in graph.node)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and those inside of its nodes."""
    yield graph
    for node in graph.node:
        for inner in _bodies(node):
            yield from _graphs(inner)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _typed(model: onnx.ModelProto) -> frozenset[str]:
    """Names of values, in whatever graph, whose element type is known."""
    names = set()
    for graph in _graphs(model.graph):
        names |= {tensor.name for tensor in graph.initializer}
        names |= {
            value.name
            for value in [*graph.input, *graph.value_info, *graph.output]
            if value.type.WhichOneof("value") is not None
        }
    return frozenset(names)
