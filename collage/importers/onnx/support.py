"""Which ONNX operators can be imported, and the names of all those that cannot."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import onnx
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

from collage.backends.contract.errors import ModelError
from collage.importers.onnx.inference import infer_shapes
from collage.importers.onnx.operators import BEYOND, CONVERTERS

_MICROSOFT_ONLY = frozenset(
    [
        "AllClassNMS",
        "Attention",
        "BiasGelu",
        "EmbedLayerNormalization",
        "FastGelu",
        "MatMulInteger16",
        "SkipLayerNormalization",
    ]
)
"""TVM looks operators up by name alone; these names mean onnxruntime's own operators to it."""

_DATA_DEPENDENT = frozenset(
    [
        *("AllClassNMS", "Unique"),
        *("If", "Loop", "Scan"),
    ]
)
"""The shape of their results depends on data; control flow is straightened out before."""

_REASONS = {
    **dict.fromkeys(_DATA_DEPENDENT, "the shape of its result depends on data"),
    **dict.fromkeys(
        (
            *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
            *("RandomUniform", "RandomUniformLike"),
        ),
        "it draws random numbers: another result at each call",
    ),
    **dict.fromkeys(
        (
            *("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
            "TfIdfVectorizer",
        ),
        "it works on strings or tables; compute it outside of the model",
    ),
    "SequenceMap": "how many tensors its sequence holds depends on data",
    "ImageDecoder": "it decodes a compressed image; decode it outside of the model",
    **dict.fromkeys(("Adagrad", "Adam", "Gradient", "Momentum"), "it belongs to training"),
}
"""Why some are refused; of all others there is no converter."""

_REASONS_OF_MICROSOFT = {
    **dict.fromkeys(
        (
            *("PackedAttention", "PackedMultiHeadAttention", "RemovePadding", "RestorePadding"),
            "PagedAttention",
        ),
        "how many rows it has depends on data; optimize the model for onnxruntime without removing "
        "padding, so that it has Attention or MultiHeadAttention",
    ),
    "DecoderMaskedSelfAttention": (
        "it writes into a cache of beams; export the decoder with MultiHeadAttention or "
        "GroupQueryAttention"
    ),
    "SparseAttention": "export the model with GroupQueryAttention, or onnx's Attention with a mask",
    "LongformerAttention": "export the model without onnxruntime's optimizer for Longformer",
    **dict.fromkeys(
        ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"),
        "it is a search around a decoder; export the decoder alone, and search with a program",
    ),
    **dict.fromkeys(("Tokenizer", "MurmurHash3"), "compute it outside of the model"),
}
"""Why some of onnxruntime's own are refused, and what to do."""

_DOMAIN_REASONS = {
    "com.microsoft.nchwc": "for one processor, save it with optimizations up to 'extended'",
}
"""Why all operators of a domain are refused."""

_MICROSOFT = "com.microsoft"
_MAX_NODES_NAMED = 5


def is_supported(node: onnx.NodeProto) -> bool:
    """Whether there is a converter for this node's operator, TVM's or ours."""
    if node.op_type in _DATA_DEPENDENT:
        return False
    if node.domain in ("", "ai.onnx"):
        known = node.op_type in _get_convert_map() and node.op_type not in _MICROSOFT_ONLY
        return known or node.op_type in CONVERTERS or node.op_type == "Constant"
    if node.op_type in BEYOND.get(node.domain, {}):
        return True
    return node.domain == _MICROSOFT and node.op_type in _MICROSOFT_ONLY | {"Gelu"}


def _used_names(model: onnx.ModelProto) -> set[str]:
    """Every value that a node reads or the graph gives back."""
    used = {name for node in all_nodes(model.graph) for name in node.input}
    return used | {value.name for value in model.graph.output}


def drop_unused_outputs(model: onnx.ModelProto) -> None:
    """Cut trailing outputs that nobody uses, in place: the importer counts them.

    Not those of a split, which is into as many parts as it has outputs, nor the second of a batch
    norm, which says before operator set 14 that it trains.
    """
    used = _used_names(model)
    for node in model.graph.node:
        if node.op_type == "Split":
            continue
        while node.output and not node.output[-1]:
            node.output.pop()
        least = 2 if node.op_type == "BatchNormalization" else 1
        while len(node.output) > least and node.output[-1] not in used:
            node.output.pop()


_COMPUTED = frozenset(
    [
        *("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "BOOL", "INT8", "INT16", "INT32", "INT64"),
        *("UINT8", "UINT16", "UINT32", "UINT64", "UNDEFINED"),
    ]
)
"""Element types that are computed with; not strings, complex numbers, or parts of bytes."""


def require_tensors(outputs: Sequence[onnx.ValueInfoProto]) -> None:
    """Refuse results that are neither tensors nor sequences of tensors.

    Raises
    ------
    ModelError
        Names the first.
    """
    for value in outputs:
        kind = value.type.WhichOneof("value") or "tensor_type"
        of_tensors = value.type.sequence_type.elem_type.HasField("tensor_type")
        if kind != "tensor_type" and not of_tensors:
            raise ModelError(
                f"output '{value.name}' is no tensor ({kind}); only tensors can be given back",
                value=value.name,
            )


def require_element_types(model: onnx.ModelProto) -> None:
    """Refuse a graph with values of a type that nothing here computes with.

    Raises
    ------
    ModelError
        Names the types, with the values.
    """
    try:
        graph = infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError):
        graph = model.graph  # What cannot be inferred is left to what is declared.
    found: dict[str, list[str]] = defaultdict(list)
    for value in [*graph.input, *graph.value_info, *graph.output]:
        kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
        if kind not in _COMPUTED:
            found[kind.lower()].append(value.name)
    for tensor in graph.initializer:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type)
        if kind not in _COMPUTED:
            found[kind.lower()].append(tensor.name)
    if found:
        named = "; ".join(f"{kind} ({_join_names(names)})" for kind, names in sorted(found.items()))
        raise ModelError(
            f"these element types are not computed with here: {named}", value=sorted(found)
        )


def require_supported(model: onnx.ModelProto) -> None:
    """Refuse a graph with operators that have no converter.

    Raises
    ------
    ModelError
        Names every operator with its nodes.
    """
    refused: dict[str, list[str]] = defaultdict(list)
    for node in all_nodes(model.graph):
        if not is_supported(node):
            domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
            refused[domain + node.op_type].append(node_label(node))
    if refused:
        raise ModelError(
            "these operators cannot be imported: " + "; ".join(_listed(refused)),
            value=sorted(refused),
        )


def _listed(refused: dict[str, list[str]]) -> Iterator[str]:
    for operator in sorted(refused):
        domain, _, name = operator.rpartition(".")
        own = _REASONS_OF_MICROSOFT if domain == _MICROSOFT else _REASONS
        reason = _DOMAIN_REASONS.get(domain) or own.get(name)
        named = f"{operator} ({_join_names(refused[operator])})"
        yield f"{named}: {reason}" if reason else named


def _join_names(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(names[:_MAX_NODES_NAMED])
    more = len(names) - _MAX_NODES_NAMED
    return shown if more <= 0 else f"{shown} and {more} more"


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """How much a tensor's elements take."""
    itemsize = int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return math.prod(int(dim) for dim in tensor.dims) * itemsize


def node_label(node: onnx.NodeProto) -> str:
    """The node's name, or that of its first output when it has none."""
    return str(node.name or next((name for name in node.output if name), node.op_type))


def is_row(value: onnx.ValueInfoProto) -> bool:
    """Whether it is declared to have one axis: in loops, numbers of rounds and conditions may."""
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and len(tensor.shape.dim) == 1


def all_nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Every node, those in branches and loops included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)
            for inner in attribute.graphs:
                yield from all_nodes(inner)
