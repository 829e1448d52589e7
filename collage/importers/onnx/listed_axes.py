"""Axes of `Unsqueeze` that a file has as a number, where the standard asks for a list of them.

PyTorch's exporter writes them so for attention whose heads share keys. onnxruntime takes them; of
other operators it does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from collage.importers.onnx.functions import graphs_of


def with_listed_axes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose constant axes are lists.

    Parameters
    ----------
    model : onnx.ModelProto
        Is not changed; is what is returned where all axes are lists.

    Returns
    -------
    onnx.ModelProto
        Each number is a list of one under a name of its own: others may read it as a number.

    Examples
    --------
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[4] x) => (float[1, 4] y) <int64 axis = {0}> { y = Unsqueeze(x, axis) }'''
    ... )
    >>> del net.graph.initializer[0].dims[:]
    >>> list(with_listed_axes(net).graph.initializer[1].dims)
    [1]
    """
    if next(_numbers(model.graph, {}), None) is None:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node, axis in list(_numbers(changed.graph, {})):
        value = int(onnx.numpy_helper.to_array(axis))
        name = f"{node.output[0]}.axes"
        changed.graph.initializer.append(
            onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [1], [value])
        )
        node.input[1] = name
    return changed


def _numbers(
    graph: onnx.GraphProto, outside: dict[str, onnx.TensorProto]
) -> Iterator[tuple[onnx.NodeProto, onnx.TensorProto]]:
    """The nodes whose axes are a constant number, in a graph and its bodies, and that number."""
    known = {**outside, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        if node.op_type == "Constant":
            known.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
        elif node.op_type == "Unsqueeze" and len(node.input) > 1:
            axis = known.get(node.input[1])
            if axis is not None and not axis.dims:
                yield node, axis
        for body in graphs_of(node):
            yield from _numbers(body, known)
