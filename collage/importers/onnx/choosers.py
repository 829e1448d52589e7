"""Operators that choose rows get another output: how many, see ``operators/choosing.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx
from onnx import helper

from collage.importers.onnx.operators.choosing import CHOOSING, MORE_ROWS


def count_rows(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Let every operator that chooses rows say how many, and the graph give that back.

    Parameters
    ----------
    model : onnx.ModelProto
        Changed in place: outputs are added behind its own.

    Returns
    -------
    list of onnx.NodeProto
        Those operators; the second output of each is the number.
    """
    choosers = [
        node
        for node in model.graph.node
        if node.op_type in CHOOSING and node.domain in ("", "ai.onnx")
    ]
    for node in choosers:
        node.output.append(f"{node.output[0]}_count")
        count = helper.make_tensor_value_info(node.output[1], onnx.TensorProto.INT64, [1])
        model.graph.output.append(count)
    return choosers


@contextmanager
def room_for_one_more(chooser: onnx.NodeProto) -> Iterator[None]:
    """While this lasts, an operator is converted as if there could be one row more.

    Parameters
    ----------
    chooser : onnx.NodeProto
        As :func:`count_rows` gave it.
    """
    chooser.attribute.append(helper.make_attribute(MORE_ROWS, 1))
    try:
        yield
    finally:
        chooser.attribute.pop()
