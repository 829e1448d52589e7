"""Axes of `Unsqueeze` that a file has as a number, where the standard asks for a list of them.

PyTorch's exporter writes them so for attention whose heads share keys. onnxruntime takes them; of
other operators it does not.
"""

from __future__ import annotations

import onnx


def list_axes(graph: onnx.GraphProto) -> None:
    """Make lists of constant axes, in place.

    Parameters
    ----------
    graph : onnx.GraphProto
        Without control flow. Each number is a list of one under a name of its own afterwards:
        others may read it as a number.

    Examples
    --------
    >>> graph = onnx.parser.parse_graph(
    ...     '''net (float[4] x) => (float[1, 4] y)
    ...     { axis = Constant<value_int = 0>() y = Unsqueeze(x, axis) }'''
    ... )
    >>> list_axes(graph)
    >>> graph.node[1].input[1], list(graph.initializer[0].dims)
    ('y.axes', [1])
    """
    numbers = {
        tensor.name: int(onnx.numpy_helper.to_array(tensor))
        for tensor in graph.initializer
        if not tensor.dims and tensor.data_type == onnx.TensorProto.INT64
    }
    for node in graph.node:
        if node.op_type == "Constant":
            numbers.update(
                (node.output[0], n) for n in map(_number, node.attribute) if n is not None
            )
        elif node.op_type == "Unsqueeze" and len(node.input) > 1 and node.input[1] in numbers:
            name = f"{node.output[0]}.axes"
            axes = onnx.helper.make_tensor(
                name, onnx.TensorProto.INT64, [1], [numbers[node.input[1]]]
            )
            graph.initializer.append(axes)
            node.input[1] = name


def _number(attribute: onnx.AttributeProto) -> int | None:
    """The whole number that a constant is."""
    if attribute.name == "value_int":
        return int(attribute.i)
    tensor = attribute.t
    if attribute.name != "value" or tensor.dims or tensor.data_type != onnx.TensorProto.INT64:
        return None
    return int(onnx.numpy_helper.to_array(tensor))
