"""Which ONNX operators can be imported, and the names of all those that cannot."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence

import onnx
import onnx.inliner
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

from collage.backends.contract.errors import ModelError

_log = logging.getLogger(__name__)

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
    ["AllClassNMS", "Compress", "If", "Loop", "NonMaxSuppression", "NonZero", "Scan", "Unique"]
)
"""The shape of their results depends on data; only static shapes can be optimized."""

_FIRST_OUTPUT_ONLY = frozenset(
    ["BatchNormalization", "Dropout", "LayerNormalization", "MaxPool", "SkipLayerNormalization"]
)

_MICROSOFT = "com.microsoft"
_MAX_NODES_NAMED = 5


def is_supported(node: onnx.NodeProto) -> bool:
    """Whether TVM's importer has a converter for this node's operator."""
    if node.op_type in _DATA_DEPENDENT:
        return False
    if node.domain in ("", "ai.onnx"):
        known = node.op_type in _get_convert_map() and node.op_type not in _MICROSOFT_ONLY
        return known or node.op_type == "Constant"
    return node.domain == _MICROSOFT and node.op_type in _MICROSOFT_ONLY | {"Gelu"}


def expand_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inline the model's own functions, and standard operators that are unknown but defined by one.

    Celu, Swish or GroupNormalization, say, are written in the standard as graphs of simpler
    operators.
    """
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    unknown = sorted(
        {(node.domain, node.op_type) for node in model.graph.node if not is_supported(node)}
    )
    standard = [(domain, name) for domain, name in unknown if domain in ("", "ai.onnx")]
    if not standard:
        return model
    _spell_out_defaults(model, {name for _, name in standard})
    try:
        return onnx.inliner.inline_selected_functions(model, standard, inline_schema_functions=True)
    except RuntimeError as err:
        # It cannot expand calls with absent optional inputs; they are named as unknown operators.
        _log.info("the standard's functions %s were not expanded: %s", standard, err)
        return model


def _spell_out_defaults(model: onnx.ModelProto, operators: set[str]) -> None:
    """Write default attributes into nodes, in place: function bodies refer to them by name."""
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    for node in model.graph.node:
        if node.op_type not in operators or not onnx.defs.has(node.op_type):
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, versions.get("", 1))
        except onnx.defs.SchemaError:
            continue  # newer than the model's operator set; it is named as unknown later
        given = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items():
            if name not in given and attribute.default_value.name:
                node.attribute.append(attribute.default_value)


def _used_names(model: onnx.ModelProto) -> set[str]:
    """Every value that a node reads or the graph gives back."""
    used = {name for node in _all_nodes(model.graph) for name in node.input}
    return used | {value.name for value in model.graph.output}


def _extra_outputs(model: onnx.ModelProto) -> dict[str, list[str]]:
    """Nodes whose second or later output is used where the importer does not compute it."""
    used = _used_names(model)
    found: dict[str, list[str]] = defaultdict(list)
    for node in _all_nodes(model.graph):
        if node.op_type in _FIRST_OUTPUT_ONLY and used.intersection(node.output[1:]):
            what = f"{node.op_type} with its output {node.output[1] or node.output[2]}"
            found[what].append(node_label(node))
    return found


def drop_unused_outputs(model: onnx.ModelProto) -> None:
    """Cut trailing outputs that nobody uses, in place: the importer counts them."""
    used = _used_names(model)
    for node in model.graph.node:
        while len(node.output) > 1 and node.output[-1] not in used:
            node.output.pop()


def require_supported(model: onnx.ModelProto) -> None:
    """Refuse a graph with operators that have no converter.

    Raises
    ------
    ModelError
        Names every operator with its nodes.
    """
    refused: dict[str, list[str]] = defaultdict(list)
    for node in _all_nodes(model.graph):
        if not is_supported(node):
            domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
            refused[domain + node.op_type].append(node_label(node))
    refused.update(_extra_outputs(model))
    if refused:
        raise ModelError(
            "these operators cannot be imported: " + "; ".join(_listed(refused)),
            value=sorted(refused),
        )


def _listed(refused: dict[str, list[str]]) -> Iterator[str]:
    for operator in sorted(refused):
        yield f"{operator} ({_join_names(refused[operator])})"


def _join_names(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(names[:_MAX_NODES_NAMED])
    more = len(names) - _MAX_NODES_NAMED
    return shown if more <= 0 else f"{shown} and {more} more"


def node_label(node: onnx.NodeProto) -> str:
    """The node's name, or that of its first output when it has none."""
    return str(node.name or next((name for name in node.output if name), node.op_type))


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node, those in branches and loops included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)
            for inner in attribute.graphs:
                yield from _all_nodes(inner)
