"""Concrete shapes for an ONNX graph's inputs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import onnx

from collage.backends.contract.errors import ModelError, ShapeError
from collage.importers._base import Shapes, extents_by_name, show

_log = logging.getLogger(__name__)


def real_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The graph's inputs that no initializer fills."""
    filled = {tensor.name for tensor in graph.initializer}
    filled |= {tensor.values.name for tensor in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in filled]


def concretize(inputs: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> None:
    """Write a static shape into every input, in place.

    A named dimension that two inputs share has to be given once only. Where two are given different
    sizes for it, the name says nothing: exporters name dimensions alike that are not.

    Parameters
    ----------
    inputs : sequence of onnx.ValueInfoProto
        Changed in place.
    shapes : mapping of str to sequence of int
        What the user gave, by the names of inputs or of dimensions.

    Raises
    ------
    ShapeError
        For a shape of an unknown input, one that contradicts the declared rank or a static
        dimension, one with an extent below 0, or an open dimension that nobody gave.
    """
    known = {value.name: value for value in inputs}
    named = {name: {extent} for name, extent in _by_dimension(shapes, known).items()}
    for name, shape in shapes.items():
        if name in known:
            _apply_given(known[name], list(shape), named)
    clashing = {name: sizes for name, sizes in named.items() if len(sizes) > 1}
    for name, sizes in clashing.items():
        _log.warning("dimension '%s' is given the sizes %s; the name is ignored", name, sizes)
    for value in inputs:
        _apply_named(value, {name: size for name, (size, *more) in named.items() if not more})


def _by_dimension(shapes: Shapes, inputs: Mapping[str, onnx.ValueInfoProto]) -> dict[str, int]:
    """What was given by the names of dimensions, which are told from inputs' by the graph."""
    tensors = [v for v in inputs.values() if v.type.WhichOneof("value") == "tensor_type"]
    declared = [dim for value in tensors for dim in _declared(value)]
    return extents_by_name(
        *(shapes, inputs), [d for d in declared if isinstance(d, str) and d != "?"]
    )


def _declared(value: onnx.ValueInfoProto) -> list[int | str]:
    """Each dimension as a number or a name; ``?`` for one with neither."""
    dims = value.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims]


def _apply_given(value: onnx.ValueInfoProto, shape: list[int], named: dict[str, set[int]]) -> None:
    tensor = _tensor_type(value)
    if any(isinstance(d, bool) or not isinstance(d, int) or d < 0 for d in shape):
        raise ShapeError(
            f"input '{value.name}': '{show(shape)}' is no shape; give whole numbers, "
            f"for example --shape {value.name}=1,3,224,224",
            value=tuple(shape),
        )
    if not tensor.HasField("shape"):
        for size in shape:
            tensor.shape.dim.add().dim_value = size
        tensor.shape.SetInParent()
        return
    declared = _declared(value)
    if len(declared) != len(shape):
        raise ShapeError(
            f"input '{value.name}' has {len(declared)} dimensions ({show(declared)}), "
            f"but the shape {show(shape)} has {len(shape)}",
            value=tuple(shape),
        )
    for dim, old, new in zip(tensor.shape.dim, declared, shape, strict=True):
        if isinstance(old, int) and old >= 0 and old != new:
            raise ShapeError(
                f"input '{value.name}' is declared as ({show(declared)}); "
                f"{show(shape)} contradicts its dimension of {old}",
                value=tuple(shape),
            )
        if isinstance(old, str) and old != "?":
            named.setdefault(old, set()).add(new)
        dim.dim_value = new


def _apply_named(value: onnx.ValueInfoProto, named: Mapping[str, int]) -> None:
    tensor = _tensor_type(value)
    if not tensor.HasField("shape"):
        raise ShapeError(
            f"input '{value.name}' declares no shape; give one, for example "
            f"--shape {value.name}=1,3,224,224",
            value=value.name,
        )
    declared = _declared(value)
    for dim, old in zip(tensor.shape.dim, declared, strict=True):
        if isinstance(old, str) and old in named:
            dim.dim_value = named[old]
    missing = [d for d in _declared(value) if isinstance(d, str) or d < 0]
    if missing:
        example = [d if isinstance(d, int) and d >= 0 else 1 for d in _declared(value)]
        raise ShapeError(
            f"input '{value.name}' has open dimensions ({show(declared)}); "
            f"give its shape, for example --shape {value.name}={show(example)}"
            f"{_or_by_name(missing)}",
            value=tuple(declared),
        )


def _or_by_name(missing: Sequence[int | str]) -> str:
    """What else may be given: each dimension by its name."""
    names = list(dict.fromkeys(str(d) for d in missing))
    if any(not isinstance(d, str) or d == "?" for d in missing):
        return ""
    return ", or " + " ".join(f"--shape {name}=1" for name in names)


def _tensor_type(value: onnx.ValueInfoProto) -> onnx.TypeProto.Tensor:
    if value.type.WhichOneof("value") != "tensor_type":
        kind = value.type.WhichOneof("value") or "nothing"
        instead = ""
        if kind == "sequence_type":
            instead = "; give the model an input for each of its tensors, and SequenceConstruct"
        raise ModelError(
            f"input '{value.name}' is no tensor ({kind}); only tensors can be given to a model"
            f"{instead}",
            value=value.name,
        )
    if value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
        raise ModelError(
            f"input '{value.name}' holds strings; only numbers can be given to a model",
            value=value.name,
        )
    return value.type.tensor_type
