"""Weights that are stored otherwise than they are computed with: in few bits, or sparsely.

Nothing computes with them. Whole numbers of 4 and 2 bits are kept in bytes, which hold the same
values; weights in floats of 8 and 4 bits become what they are dequantized to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from copy import deepcopy

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from collage.importers.onnx.functions import graphs_of
from collage.importers.onnx.known import names_used

_BYTES = {
    kind: wide
    for names, wide in (
        (("INT4", "INT2"), TensorProto.INT8),
        (("UINT4", "UINT2"), TensorProto.UINT8),
    )
    for name in names
    if (kind := getattr(TensorProto, name, None)) is not None
}
"""Types of whole numbers, and of the bytes that hold them."""

_FLOATS = frozenset(
    number
    for name, number in TensorProto.DataType.items()
    if name.startswith(("FLOAT8", "FLOAT4", "FLOAT6"))
)

_MOVES = frozenset(
    [
        *("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Gather", "Slice"),
        *("Concat", "Split", "Expand", "Tile", "Pad"),
    ]
)
"""Their results are of the type of their first operand."""

_log = logging.getLogger(__name__)


def weights_of(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every constant of a model, those of bodies among them.

    Parameters
    ----------
    model : onnx.ModelProto
        Its own tensors are given, to be changed by who likes.

    Yields
    ------
    onnx.TensorProto
        An initializer, or what a node ``Constant`` gives.
    """
    for graph in _all_graphs(model.graph):
        for _, tensor in _constants(graph):
            yield tensor


def fill_in_sparse(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose constants are stored with all of their elements.

    Parameters
    ----------
    model : onnx.ModelProto
        Is not changed; is what is returned where no constant is sparse.

    Returns
    -------
    onnx.ModelProto
        With zeros where nothing was stored.
    """
    if not any(_sparse(model)):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for stored in list(_sparse(changed)):
        if isinstance(stored, onnx.GraphProto):
            stored.initializer.extend(map(_dense, stored.sparse_initializer))
            del stored.sparse_initializer[:]
        else:
            filled = helper.make_attribute("value", _dense(stored.sparse_tensor))
            stored.CopyFrom(filled)
    return changed


def _sparse(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.AttributeProto]:
    """Graphs with such initializers, and attributes of such constants."""
    graphs = list(_all_graphs(model.graph))
    yield from (graph for graph in graphs if graph.sparse_initializer)
    for node in (node for one in (*graphs, *model.functions) for node in one.node):
        if node.op_type == "Constant":
            yield from (a for a in node.attribute if a.HasField("sparse_tensor"))


def _dense(tensor: onnx.SparseTensorProto) -> TensorProto:
    values, places = (numpy_helper.to_array(one) for one in (tensor.values, tensor.indices))
    filled = np.zeros(tuple(tensor.dims), values.dtype)
    if places.ndim == 1:
        filled.reshape(-1)[places] = values
    else:
        filled[tuple(places.T)] = values
    return numpy_helper.from_array(filled, tensor.values.name)


def widen_narrow(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that stores nothing in types that are not computed with.

    Parameters
    ----------
    model : onnx.ModelProto
        Is not changed; is what is returned where it has no such weights.

    Returns
    -------
    onnx.ModelProto
        Inputs and outputs are as they were: one of such a type is for others to refuse. So is what
        rounds to floats of a byte as the model runs.
    """
    stored = {kind for graph in _all_graphs(model.graph) for kind in _stored(graph)}
    if not stored & (_BYTES.keys() | _FLOATS):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    if stored & _BYTES.keys():
        _in_bytes(changed.graph)
    if stored & _FLOATS:
        _evaluate_floats(changed)
    return changed


def _all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for inside in graphs_of(node):
            yield from _all_graphs(inside)


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """Every constant of a graph but for those of its bodies, with its name."""
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        if node.op_type == "Constant":
            values = [a.t for a in node.attribute if a.name == "value"]
            yield from zip(node.output, values, strict=False)


def _stored(graph: onnx.GraphProto) -> Iterator[int]:
    yield from (tensor.data_type for _, tensor in _constants(graph))
    for node in graph.node:
        if node.op_type == "QuantizeLinear":
            yield from (a.i for a in node.attribute if a.name == "output_dtype")


def _in_bytes(graph: onnx.GraphProto) -> None:
    """Whole numbers of less than a byte as bytes, in a graph and its bodies."""
    kinds: dict[str, int] = {}
    for part in _all_graphs(graph):
        for name, tensor in _constants(part):
            if (wide := _BYTES.get(tensor.data_type)) is not None:
                kinds[name] = tensor.data_type
                values = numpy_helper.to_array(tensor)
                array = values.astype(helper.tensor_dtype_to_np_dtype(wide))
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        del part.value_info[:]
        nodes = list(part.node)
        part.ClearField("node")
        for node in nodes:
            moved = kinds.get(node.input[0]) if node.op_type in _MOVES and node.input else None
            kinds.update((name, moved) for name in node.output if moved is not None)
            kind = _rounded_to(node, kinds) if node.op_type == "QuantizeLinear" else None
            if kind is None:
                part.node.append(node)
            else:
                part.node.extend(_rounded_in_bytes(node, kind))


def _rounded_to(node: onnx.NodeProto, kinds: dict[str, int]) -> int | None:
    """The narrow type that a ``QuantizeLinear`` gives, if it gives one."""
    named = next((a.i for a in node.attribute if a.name == "output_dtype"), 0)
    kind = kinds.get(node.input[2], named) if len(node.input) > 2 else named
    return kind if kind in _BYTES else None


def _rounded_in_bytes(node: onnx.NodeProto, kind: int) -> Iterator[onnx.NodeProto]:
    """A rounding to bytes, cut off where the narrow type ends."""
    (result,) = node.output
    name = TensorProto.DataType.Name(kind)
    signed, bits = not name.startswith("U"), int(name[-1])
    limits = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    for attribute in node.attribute:
        if attribute.name == "output_dtype":
            attribute.i = _BYTES[kind]
    node.output[0] = f"{result}.in_bytes"
    yield node
    ends = [f"{result}.least", f"{result}.most"]
    for end, limit in zip(ends, limits, strict=True):
        value = np.asarray(limit, helper.tensor_dtype_to_np_dtype(_BYTES[kind]))
        yield helper.make_node("Constant", [], [end], value=numpy_helper.from_array(value))
    yield helper.make_node("Clip", [node.output[0], *ends], [result])


def _evaluate_floats(model: onnx.ModelProto) -> None:
    """What is computed from weights in narrow floats and nothing else, as weights in its place."""
    graph = model.graph
    known = dict(_constants(graph))
    narrow = {name for name, tensor in known.items() if tensor.data_type in _FLOATS}
    from_them, left = set(narrow), []
    for node in graph.node:
        names = dict.fromkeys(name for name in node.input if name)
        tensors: list[TensorProto] = []
        if not from_them.isdisjoint(names) and known.keys() >= names.keys():
            tensors = _evaluated(model, node, [(name, known[name]) for name in names])
        if not tensors:
            left.append(node)
        known.update((tensor.name, tensor) for tensor in tensors)
        from_them.update(tensor.name for tensor in tensors)
    used = set(names_used(left)) | {value.name for value in graph.output}
    done = narrow - used
    kept = [deepcopy(tensor) for tensor in graph.initializer if tensor.name not in done]
    made = [known[name] for name in sorted((from_them - narrow) & used)]
    nodes = [deepcopy(node) for node in left if done.isdisjoint(node.output)]
    del graph.value_info[:], graph.initializer[:], graph.node[:]
    graph.initializer.extend([*kept, *made])
    graph.node.extend(nodes)


def _evaluated(
    model: onnx.ModelProto, node: onnx.NodeProto, given: Sequence[tuple[str, TensorProto]]
) -> list[TensorProto]:
    """A node's results by the standard's own reference; none where that has none."""
    outputs = [name for name in node.output if name]
    nothing = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "node", [], nothing)
    for name, tensor in given:
        graph.initializer.append(tensor)
        graph.initializer[-1].name = name
    alone = helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=model.ir_version
    )
    try:
        found = ReferenceEvaluator(alone).run(None, {})
    except Exception as err:  # noqa: BLE001 - it raises anything; the node stays, and is refused
        _log.info("%s (%s) is not evaluated: %s", node.name, node.op_type, err)
        return []
    arrays = [np.asarray(array) for array in found]
    return [numpy_helper.from_array(*named) for named in zip(arrays, outputs, strict=True)]
