"""What control flow no straight line stands for, and why."""

from __future__ import annotations

import onnx

from collage.backends.contract.errors import ModelError
from collage.importers.onnx.support import all_nodes

SHAPE_DEPENDS = "the shape of its result depends on data"

_DEAR = frozenset(
    [
        *("Attention", "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "Einsum", "Gemm"),
        *("GRU", "LSTM", "MatMul", "MatMulInteger", "MultiHeadAttention", "QLinearConv"),
        *("QLinearMatMul", "RNN"),
    ]
)
"""Operators that are not computed for nothing: choosing among what was computed costs less than
the rest, and these are the rest."""


class DataDecideError(ModelError):
    """Data decide what runs: no straight line does the same, or none at the price.

    Examples
    --------
    >>> refusal("head (If)", SHAPE_DEPENDS)
    DataDecideError('head (If) cannot be imported: the shape of its result depends on data')
    """


def refusal(label: str, reason: str) -> DataDecideError:
    """The error for a node that cannot be written out.

    Parameters
    ----------
    label : str
        The node, with its operator.
    reason : str
        What is in the way.

    Returns
    -------
    DataDecideError
        To be raised.
    """
    return DataDecideError(f"{label} cannot be imported: {reason}", value=label)


def require_tensors(body: onnx.GraphProto, label: str) -> None:
    """Refuse a body whose results are no tensors.

    Parameters
    ----------
    body : onnx.GraphProto
        Of a node.
    label : str
        The node.

    Raises
    ------
    DataDecideError
        Names the first such result.
    """
    for value in body.output:
        kind = value.type.WhichOneof("value") or "tensor_type"
        if kind != "tensor_type":
            raise refusal(label, f"its result '{value.name}' is no tensor but a {kind[:-5]}")


def require_cheap(body: onnx.GraphProto, label: str) -> None:
    """Refuse to compute products that may be for nothing.

    Parameters
    ----------
    body : onnx.GraphProto
        Of a node.
    label : str
        The node.

    Raises
    ------
    DataDecideError
        When the body holds such an operator, at any depth.
    """
    if any(node.op_type in _DEAR for node in all_nodes(body)):
        raise refusal(label, "its products would be computed whether they are chosen or not")


def declared_shape(value: onnx.ValueInfoProto, label: str) -> list[int]:
    """The shape that a body declares for a result, of which there is nothing to see it from.

    Parameters
    ----------
    value : onnx.ValueInfoProto
        A result of a body that runs not once.
    label : str
        The node.

    Returns
    -------
    list of int
        Of one round's.

    Raises
    ------
    DataDecideError
        When it is not declared in numbers.
    """
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim):
        raise refusal(label, "it runs not once, and its result's shape is not declared")
    return [int(dim.dim_value) for dim in tensor.shape.dim]
