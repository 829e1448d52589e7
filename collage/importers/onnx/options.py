"""Optional values among a model's inputs and outputs: they are there."""

from __future__ import annotations

import logging

import onnx

_log = logging.getLogger(__name__)


def without_options(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose optional inputs and outputs are what they hold.

    What is compiled knows no values that may be missing: what an input may hold is given in every
    call.

    Parameters
    ----------
    model : onnx.ModelProto
        Is not changed; is what is returned where it has none.

    Returns
    -------
    onnx.ModelProto
        Of which a warning names the inputs that are not optional any more.

    Examples
    --------
    >>> tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [3])
    >>> optional = onnx.helper.make_optional_type_proto(tensor)
    >>> graph = onnx.helper.make_graph(
    ...     [onnx.helper.make_node("OptionalGetElement", ["x"], ["y"])],
    ...     "net",
    ...     [onnx.helper.make_value_info("x", optional)],
    ...     [onnx.helper.make_value_info("y", tensor)],
    ... )
    >>> found = without_options(onnx.helper.make_model(graph))
    >>> found.graph.input[0].type.WhichOneof("value")
    'tensor_type'
    """
    if not any(_is_optional(v) for v in (*model.graph.input, *model.graph.output)):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for value in changed.graph.input:
        if _is_optional(value):
            _log.warning("input '%s' is optional; it has to be given in every call", value.name)
            _be_there(value)
    for value in changed.graph.output:
        if _is_optional(value):
            _be_there(value)
    return changed


def _is_optional(value: onnx.ValueInfoProto) -> bool:
    return bool(value.type.HasField("optional_type"))


def _be_there(value: onnx.ValueInfoProto) -> None:
    inner = onnx.TypeProto()
    inner.CopyFrom(value.type.optional_type.elem_type)
    value.type.CopyFrom(inner)
