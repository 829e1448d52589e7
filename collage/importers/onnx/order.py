"""Nodes of an ONNX graph in an order in which each follows what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import AttributeProto, GraphProto, NodeProto

from collage.backends.contract.errors import ModelError
from collage.importers.onnx.support import node_label


def in_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its nodes sorted, as the standard asks for and some writers do not do.

    Parameters
    ----------
    model : onnx.ModelProto
        Not changed.

    Returns
    -------
    onnx.ModelProto
        The same one where all nodes are in order; others stay in the order that they were in, as
        far as that goes.

    Raises
    ------
    ModelError
        Where nodes wait for each other.

    Examples
    --------
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[8] x) => (float[8] y) { y = Neg(a) a = Relu(x) }'''
    ... )
    >>> [node.op_type for node in in_order(net).graph.node]
    ['Relu', 'Neg']
    """
    if _is_in_order(model.graph):
        return model
    found = onnx.ModelProto()
    found.CopyFrom(model)
    _sort(found.graph)
    return found


def _is_in_order(graph: GraphProto) -> bool:
    later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        if not later.isdisjoint(_read(node)):
            return False
        later.difference_update(node.output)
    return all(_is_in_order(inside) for node in graph.node for inside in _graphs(node))


def _sort(graph: GraphProto) -> None:
    for node in graph.node:
        for inside in _graphs(node):
            _sort(inside)
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    placed: dict[int, bool] = {}
    for first in range(len(nodes)):
        _place(first, nodes, maker, placed)
    del graph.node[:]
    graph.node.extend(nodes[i] for i in placed)


def _place(
    first: int, nodes: list[NodeProto], maker: Mapping[str, int], placed: dict[int, bool]
) -> None:
    """Put a node behind all that it reads, without recursion: chains are thousands of nodes long.

    ``placed`` has nodes in their new order; meanwhile ``waiting`` has those that are begun.
    """
    waiting = {first: _makers(nodes[first], maker)} if first not in placed else {}
    while waiting:
        node = next(reversed(waiting))
        before = next((i for i in waiting[node] if i not in placed), None)
        if before is None:
            del waiting[node]
            placed[node] = True
        elif before in waiting:
            one, other = (f"{nodes[i].op_type} ({node_label(nodes[i])})" for i in (node, before))
            raise ModelError(
                f"the graph is damaged: {one} waits for {other}, which waits for it", value=one
            )
        else:
            waiting[before] = _makers(nodes[before], maker)


def _makers(node: NodeProto, maker: Mapping[str, int]) -> Iterator[int]:
    return iter([maker[name] for name in _read(node) if name in maker])


def _read(node: NodeProto) -> list[str]:
    """What a node reads, with what the graphs in it read from outside."""
    found = [name for name in node.input if name]
    for inside in _graphs(node):
        own = {name for one in inside.node for name in one.output}
        own |= {value.name for value in inside.input} | {one.name for one in inside.initializer}
        read = [name for one in inside.node for name in _read(one)]
        read += [value.name for value in inside.output]
        found += [name for name in read if name not in own]
    return found


def _graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
