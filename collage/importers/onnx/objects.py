"""ONNX models in memory, as other libraries hold them."""

from __future__ import annotations

import sys
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from collage.backends.contract.errors import ModelError


def onnx_model_of(source: Any) -> onnx.ModelProto | None:
    """The ONNX model that an object is or holds; None for anything else.

    A ``ModelProto``, its bytes, what ``torch.onnx.export`` returns, or an ``onnx_ir.Model``.

    Raises
    ------
    ModelError
        For bytes that are no ONNX model.

    Examples
    --------
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[4] x) => (float[4] y) { y = Relu(x) }'''
    ... )
    >>> onnx_model_of(net.SerializeToString()).graph.name
    'net'
    """
    if isinstance(source, onnx.ModelProto):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        return _parsed(bytes(source))
    library = sys.modules.get("onnx_ir")
    if library is None:  # Whoever holds an object of it has imported it.
        return None
    # PyTorch's programs hold one.
    held = source if isinstance(source, library.Model) else getattr(source, "model", None)
    if not isinstance(held, library.Model):
        return None
    proto: onnx.ModelProto = library.to_proto(held)
    return proto


def _parsed(data: bytes) -> onnx.ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as err:
        raise ModelError(f"these {len(data)} bytes are no ONNX model", value=len(data)) from err
    if not model.ir_version or not model.graph.output:
        raise ModelError(f"these {len(data)} bytes are no ONNX model", value=len(data))
    return model
