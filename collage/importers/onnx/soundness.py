"""Whether an ONNX graph is all there: files may have been cut or changed on their way."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, checker, numpy_helper
from onnx.shape_inference import InferenceError

from collage.backends.contract.errors import ModelError, telling_line
from collage.importers.onnx.support import node_label


def require_whole(model: onnx.ModelProto) -> None:
    """Raise where a graph uses values that nothing defines, or has weights of another size.

    Parameters
    ----------
    model : onnx.ModelProto
        With its weights, those that lie in files of their own included.

    Raises
    ------
    ModelError
        Names the first such value or weight.
    """
    _require_whole(model.graph, frozenset())


def require_text(message: Message) -> None:
    """Raise where something that is text by ONNX's definition is none, which protobuf lets pass.

    Parameters
    ----------
    message : Message
        A model, or a part of one. Every message in it is looked at, so this is for models that
        something else failed at.

    Raises
    ------
    ModelError
        Shows the first one's bytes.

    Examples
    --------
    >>> require_text(onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[8] x) => (float[8] y) { y = Relu(x) }'''
    ... ))
    """
    for field, value in message.ListFields():
        several = [value] if isinstance(value, str | bytes | Message) else value
        if field.type == field.TYPE_MESSAGE:
            for part in several:
                require_text(part)
        elif field.type == field.TYPE_STRING:
            for text in several:
                if isinstance(text, bytes):
                    raise ModelError(
                        f"the graph is damaged: '{field.name}' is no text but {text[:40]!r}",
                        value=text,
                    )


def require_standard(model: onnx.ModelProto) -> None:
    """Raise where ONNX's own checker, or its inference of shapes, finds that a model is none.

    Parameters
    ----------
    model : onnx.ModelProto
        That something else failed at: the checker also minds what does no harm.

    Raises
    ------
    ModelError
        Says what the checker says.

    Examples
    --------
    >>> require_standard(onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[8] x) => (float[8] y) { y = Relu(x) }'''
    ... ))
    """
    if model.ByteSize() > checker.MAXIMUM_PROTOBUF:
        return
    named = onnx.ModelProto.FromString(model.SerializeToString())
    named.graph.name = named.graph.name or "graph"
    for full in (False, True):
        try:
            checker.check_model(named, full_check=full)
        except (checker.ValidationError, InferenceError, RuntimeError, ValueError) as err:
            raise ModelError(f"the graph is damaged: {telling_line(err)}", value=str(err)) from err


def _require_whole(graph: GraphProto, outer: frozenset[str]) -> None:
    for tensor in graph.initializer:
        _require_readable(tensor)
    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    defined |= {tensor.values.name for tensor in graph.sparse_initializer}
    known = outer | defined | {name for node in graph.node for name in node.output}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise ModelError(
                    f"the graph is damaged: {node.op_type} ({node_label(node)}) uses '{name}', "
                    "which nothing defines",
                    value=name,
                )
        for inside in _graphs(node):
            _require_whole(inside, known)
    _require_written_once(graph)
    for value in graph.output:
        if value.name not in known:
            raise ModelError(
                f"the graph is damaged: nothing defines its output '{value.name}'", value=value.name
            )


def _require_written_once(graph: GraphProto) -> None:
    """Whoever reads a value that two nodes write would be free to take either."""
    writers: dict[str, NodeProto] = {}
    for node in graph.node:
        for name in node.output:
            if name and writers.setdefault(name, node) is not node:
                raise ModelError(
                    f"the graph is damaged: {writers[name].op_type} and {node.op_type} both write "
                    f"'{name}'",
                    value=name,
                )


def _graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _require_readable(tensor: TensorProto) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        raise ModelError(
            f"the weight '{tensor.name}' is in a file, '{entries.get('location', '')}', that was "
            "not loaded with the model; give the path of the model in place of the object, or load "
            "it with onnx.load(path)",
            value=tensor.name,
        )
    if any(extent < 0 for extent in tensor.dims):
        raise ModelError(
            f"the graph is damaged: weight '{tensor.name}' has the shape {list(tensor.dims)}",
            value=tensor.name,
        )
    try:
        numpy_helper.to_array(tensor)
    except Exception as err:
        raise ModelError(
            f"the graph is damaged: weight '{tensor.name}' cannot be read: {err}",
            value=tensor.name,
        ) from err
