"""Operators that are written as graphs of simpler ones: the model's own, and the standard's.

The standard's are expanded here and not by ``onnx.inliner``, which cannot where an optional input
is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import onnx
import onnx.inliner
from onnx import helper

from collage.importers.onnx.inference import infer_shapes
from collage.importers.onnx.spelled_out import body_of
from collage.importers.onnx.support import all_nodes, is_supported, node_label

_STANDARD = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")

_DEEPEST = 8
"""Levels of functions that call functions."""

_log = logging.getLogger(__name__)


def expand_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inline the model's own functions, and standard operators that are unknown but defined by one.

    Celu, Swish or GroupNormalization, say, are written in the standard as graphs of simpler
    operators.
    """
    if model.functions:
        model = onnx.inliner.inline_local_functions(_with_defaults(_in_one_version(model)))
    for level in range(_DEEPEST):
        expander = _Expander(model, level)
        nodes = [inner for node in model.graph.node for inner in expander.expanded(node)]
        if not expander.found:
            return model
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        del copy.graph.node[:]
        copy.graph.node.extend(nodes)
        model = copy
    return model


def _in_one_version(model: onnx.ModelProto) -> onnx.ModelProto:
    """Functions whose operators mean the same in the model's version say that they are in it: only
    such are inlined."""
    wanted = {o.domain: o.version for o in model.opset_import}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for function in copy.functions:
        for own in function.opset_import:
            version = wanted.get(own.domain, own.version)
            if own.version != version and _mean_the_same(function, own, version):
                own.version = version
    return copy


def _with_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """Calls of the model's functions with the attributes that they leave out, in place: what is
    inlined knows nothing of defaults."""
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    for holder in (model.graph, *model.functions):
        for node in all_nodes(holder):
            called = functions.get((node.domain, node.op_type, node.overload))
            given = {attribute.name for attribute in node.attribute}
            defaults = called.attribute_proto if called is not None else ()
            node.attribute.extend(each for each in defaults if each.name not in given)
    return model


def _mean_the_same(
    function: onnx.FunctionProto, own: onnx.OperatorSetIdProto, version: int
) -> bool:
    kinds = {node.op_type for node in all_nodes(function) if node.domain == own.domain}
    try:
        return all(
            onnx.defs.get_schema(kind, own.version, own.domain).since_version
            == onnx.defs.get_schema(kind, version, own.domain).since_version
            for kind in kinds
        )
    except onnx.defs.SchemaError:
        return False  # of no standard, or newer than this package: it stays as it is


class _Expander:
    """Writes the bodies of one level of functions in the place of their calls."""

    def __init__(self, model: onnx.ModelProto, level: int) -> None:
        self._model, self._level, self._count = model, level, 0
        self._versions = {
            "" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import
        }
        self._types: dict[str, onnx.TypeProto] | None = None
        self._constants = {tensor.name for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant":
                self._constants.update(node.output)
        self.found = False

    def expanded(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """The node itself, or what it stands for."""
        body = body_of(node, self._constants)
        mapped = node.op_type == "SequenceMap"  # It is written out with all that has a body.
        if body is None and not mapped and not is_supported(node) and node.domain in _STANDARD:
            body = self._body(node)
        if body is None:
            yield node
            return
        self.found = True
        self._count += 1
        yield from _inlined(node, body, f"{node_label(node)}_{self._level}_{self._count}_")

    def _body(self, node: onnx.NodeProto) -> onnx.FunctionProto | None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = int(self._versions.get(domain, 1))
        if not onnx.defs.has(node.op_type, domain):
            return None
        try:
            schema = onnx.defs.get_schema(node.op_type, version, domain)
        except onnx.defs.SchemaError:
            return None  # newer than the model's operator set; it is named as unknown later
        standard = int(self._versions.get("", 1))
        if schema.has_function:
            known = [v for v in schema.function_opset_versions if v <= standard]
            if not known:
                return None
            text = schema.get_function_with_opset_version(max(known))
        elif schema.has_context_dependent_function:
            versions = schema.context_dependent_function_opset_versions
            known = [v for v in versions if v <= standard]
            if not known:
                return None
            text = schema.get_context_dependent_function_with_opset_version(
                max(known), node.SerializeToString(), self._input_types(node)
            )
        else:
            return None
        if not text:
            _log.info("the standard does not expand %s as it is called", node_label(node))
            return None
        body = onnx.FunctionProto()
        body.ParseFromString(text)
        _fill_in_defaults(node, body, schema)
        return body

    def _input_types(self, node: onnx.NodeProto) -> list[bytes]:
        if self._types is None:
            self._types = _value_types(self._model)
        unknown = onnx.TypeProto()
        return [self._types.get(name, unknown).SerializeToString() for name in node.input]


def _value_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    try:
        graph = infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError) as err:
        _log.info("no types are inferred: %s", err)
        graph = model.graph
    found = {v.name: v.type for v in [*graph.input, *graph.value_info, *graph.output]}
    for tensor in graph.initializer:
        found[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    return found


def _fill_in_defaults(
    node: onnx.NodeProto, body: onnx.FunctionProto, schema: onnx.defs.OpSchema
) -> None:
    """Write default attributes into a call, in place: function bodies refer to them by name."""
    given = {attribute.name for attribute in node.attribute}
    for attribute in body.attribute_proto:
        if attribute.name not in given:
            node.attribute.append(attribute)
            given.add(attribute.name)
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _inlined(
    node: onnx.NodeProto, body: onnx.FunctionProto, prefix: str
) -> Iterator[onnx.NodeProto]:
    """The nodes of a function's body, under the names of its call."""
    arguments = [*node.input, *[""] * (len(body.input) - len(node.input))]
    names = dict(zip(body.input, arguments, strict=False))
    results = [*node.output, *[""] * (len(body.output) - len(node.output))]
    wanted = {
        formal: actual
        for formal, actual in zip(body.output, results, strict=False)
        if actual and formal not in names
    }
    names.update(wanted)
    given = {attribute.name: attribute for attribute in node.attribute}
    for inner in body.node:
        for name in inner.output:
            if name:
                names.setdefault(name, prefix + name)
    for inner in body.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(inner)
        copy.name = prefix + node_label(inner)
        copy.output[:] = [names.get(name, name) for name in inner.output]
        rename_inputs(copy, names)
        _bind_attributes(copy, given)
        yield copy
    for formal, actual in zip(body.output, results, strict=False):
        if actual and formal not in wanted:
            # What goes in comes out.
            yield helper.make_node("Identity", [names[formal]], [actual], name=prefix + actual)


def rename_inputs(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """Give what a node reads other names, in place; what its graphs read from outside, too.

    Parameters
    ----------
    node : onnx.NodeProto
        Changed in place.
    names : dict of str to str
        The new names; others stay. An empty one stands for an input that is left out.
    """
    node.input[:] = [names.get(name, name) for name in node.input]
    while len(node.input) and not node.input[-1]:
        node.input.pop()
    for graph in graphs_of(node):
        own = {value.name for value in graph.input} | {t.name for t in graph.initializer}
        own |= {name for inner in graph.node for name in inner.output}
        outer = {old: new for old, new in names.items() if old not in own}
        for inner in graph.node:
            rename_inputs(inner, outer)
        for value in graph.output:
            value.name = outer.get(value.name, value.name)


def graphs_of(node: onnx.NodeProto) -> Sequence[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    return [
        graph
        for attribute in node.attribute
        for graph in ([attribute.g] if attribute.HasField("g") else [*attribute.graphs])
    ]


def _bind_attributes(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> None:
    """Put a call's attributes where a body refers to them; one that is not given is left out."""
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = given.get(attribute.ref_attr_name)
            if value is None:
                continue
            bound = onnx.AttributeProto()
            bound.CopyFrom(value)
            bound.name = attribute.name
            attribute = bound
        kept.append(attribute)
    del node.attribute[:]
    node.attribute.extend(kept)
    for graph in graphs_of(node):
        for inner in graph.node:
            _bind_attributes(inner, given)


def copy_under(node: onnx.NodeProto, names: dict[str, str], prefix: str) -> onnx.NodeProto:
    """A node of a body with the names that its values have outside.

    Parameters
    ----------
    node : onnx.NodeProto
        Of the body.
    names : dict of str to str
        By name in the body, the name outside.
    prefix : str
        Before the node's own name.

    Returns
    -------
    onnx.NodeProto
        A copy.
    """
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = prefix + node_label(node)
    copy.output[:] = [names.get(name, name) for name in node.output]
    rename_inputs(copy, names)
    return copy
