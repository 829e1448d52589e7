"""What is known of an ONNX graph before it runs: constants, and what follows from them.

onnxruntime folds whole graphs (``fold``), but not what unrolling a loop leaves behind, nor graphs
of operator sets that it does not know yet. Here single nodes are evaluated by the standard's own
reference.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from collage.importers.onnx.functions import rename_inputs
from collage.importers.onnx.inference import infer_shapes

Array = NDArray[Any]

_MOST_ELEMENTS = 1 << 16
"""Larger results stay computed: they take no part in shapes or conditions."""

_MOST_PASSES = 16

_NEVER = frozenset(
    [
        *("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "If", "Loop", "Scan", "SequenceMap"),
    ]
)
"""Not the same at each call, or with graphs of their own."""

_log = logging.getLogger(__name__)


class Known:
    """Values by name, of initializers and of nodes that were evaluated.

    Parameters
    ----------
    model : onnx.ModelProto
        Says which operator sets its nodes are of, and holds the initializers.
    shapes : mapping of str to tuple of int, optional
        Of its values; by default those that ONNX's inference finds.
    """

    def __init__(
        self, model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self._opsets = list(model.opset_import)
        self._version = model.ir_version
        self.values: dict[str, Array] = {}
        self.lengths: dict[str, int] = {}
        self.shapes = dict(inferred_shapes(model) if shapes is None else shapes)
        for tensor in model.graph.initializer:
            if np.prod(tensor.dims, dtype="int64") <= _MOST_ELEMENTS and _is_plain(tensor):
                self.values[tensor.name] = numpy_helper.to_array(tensor)

    def learn(self, node: onnx.NodeProto) -> bool:
        """Whether a node's results are known; they are in :attr:`values` then."""
        if node.domain not in ("", "ai.onnx"):
            return False
        length = sequence_length(node, self.lengths, self.values, self.shapes)
        if length is not None:
            self.lengths.update((name, length) for name in node.output if name)
        if node.op_type == "SequenceLength" and node.input[0] in self.lengths:
            self.values[node.output[0]] = np.asarray(self.lengths[node.input[0]], "int64")
            return True
        if node.op_type in _NEVER:
            return False
        if node.op_type == "Shape" and (shape := self.shapes.get(node.input[0])) is not None:
            attributes = {a.name: a.i for a in node.attribute}
            part = shape[attributes.get("start", 0) : attributes.get("end")]
            self.values[node.output[0]] = np.asarray(part, "int64")
            return True
        if not all(name in self.values for name in node.input if name):
            return False
        found = self._evaluated(node)
        if found is None:
            return False
        self.values.update(zip((name for name in node.output if name), found, strict=True))
        return True

    def _evaluated(self, node: onnx.NodeProto) -> list[Array] | None:
        outputs = [name for name in node.output if name]
        nothing = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph([node], "node", [], nothing)
        graph.input.extend(
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(self.values[name].dtype),
                self.values[name].shape,
            )
            for name in dict.fromkeys(node.input)
            if name
        )
        model = helper.make_model(graph, opset_imports=self._opsets, ir_version=self._version)
        feed = {value.name: self.values[value.name] for value in graph.input}
        try:
            found = ReferenceEvaluator(model).run(None, feed)
        except Exception as err:  # noqa: BLE001 - it raises anything; the node stays as it is
            _log.info("%s (%s) is not evaluated: %s", node.name, node.op_type, err)
            return None
        if not all(isinstance(x, np.ndarray) and x.size <= _MOST_ELEMENTS for x in found):
            return None
        return [x for x in found if isinstance(x, np.ndarray)]


def _is_plain(tensor: onnx.TensorProto) -> bool:
    """Whether its elements are numbers whose type numpy itself has."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).kind in "biuf"


def sequence_length(
    node: onnx.NodeProto,
    lengths: Mapping[str, int],
    values: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
) -> int | None:
    """Of the sequence that a node gives; None where it gives none, or that is not known.

    Parameters
    ----------
    node : onnx.NodeProto
        Any.
    lengths : mapping of str to int
        Of the sequences that are known already.
    values : mapping of str to ndarray
        Tensors that are known.
    shapes : mapping of str to tuple of int
        What is known of tensors' shapes.

    Returns
    -------
    int or None
        How many tensors.

    Examples
    --------
    >>> two = onnx.helper.make_node("SequenceConstruct", ["a", "b"], ["s"])
    >>> sequence_length(two, {}, {}, {})
    2
    >>> more = onnx.helper.make_node("SequenceInsert", ["s", "c"], ["t"])
    >>> sequence_length(more, {"s": 2}, {}, {})
    3
    """
    first = lengths.get(node.input[0]) if node.input else None
    match node.op_type:
        case "SequenceConstruct":
            return len(node.input)
        case "SequenceEmpty":
            return 0
        case "SequenceMap" | "Identity":
            return first
        case "SequenceInsert":
            return None if first is None else first + 1
        case "SequenceErase":
            return None if first is None else first - 1
        case "SplitToSequence":
            return _pieces(node, values, shapes)
    return None


def _pieces(
    node: onnx.NodeProto, values: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]
) -> int | None:
    shape = shapes.get(node.input[0])
    if shape is None:
        return None
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    extent = shape[axis]
    if len(node.input) < 2 or not node.input[1]:
        return extent
    split = values.get(node.input[1])
    if split is None:
        return None
    return len(split) if split.ndim else math.ceil(extent / int(split))


def inferred_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Static shapes by name, of all values whose shape ONNX's inference finds."""
    try:
        graph = infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError) as err:
        _log.info("no shapes are inferred: %s", err)
        graph = model.graph
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        kind = value.type
        if kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.HasField("shape"):
            continue
        dims = kind.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in dims):
            found[value.name] = tuple(int(dim.dim_value) for dim in dims)
    return found


def settle(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto], known: Known) -> None:
    """Write nodes, and what they need of the known values, into a model's graph.

    Parameters
    ----------
    model : onnx.ModelProto
        Changed in place.
    nodes : iterable of onnx.NodeProto
        All that are left, in order.
    known : Known
        Whose values become initializers where they are used.
    """
    kept = list(nodes)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    del model.graph.value_info[:]
    used = set(names_used(model.graph.node))
    results = {value.name for value in model.graph.output}
    there = {tensor.name for tensor in model.graph.initializer}
    # Every trip of a loop computes what does not change in it; once is enough.
    first: dict[tuple[object, ...], str] = {}
    same: dict[str, str] = {}
    for name, value in sorted(known.values.items()):
        if name in there or name not in used | results:
            continue
        whole = np.ascontiguousarray(value).reshape(value.shape)
        alike = first.setdefault((whole.dtype, whole.shape, whole.tobytes()), name)
        if alike != name and name not in results:
            same[name] = alike
        else:
            model.graph.initializer.append(numpy_helper.from_array(whole, name))
    for node in model.graph.node if same else ():
        rename_inputs(node, same)


def names_used(nodes: Iterable[onnx.NodeProto]) -> Iterable[str]:
    """Every value that nodes read, those in graphs of their own included."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            for graph in [attribute.g, *attribute.graphs]:
                yield from names_used(graph.node)
                yield from (value.name for value in graph.output)


def fold_known(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model without the nodes whose results are known.

    What is known of a shape may make others known: where onnxruntime folds nothing, as in graphs of
    bfloat16, that takes more than one pass.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(_MOST_PASSES):
        known = Known(copy)
        nodes = [node for node in copy.graph.node if not known.learn(node)]
        done = len(nodes) == len(copy.graph.node)
        settle(copy, nodes, known)
        if done:
            break
    return copy
