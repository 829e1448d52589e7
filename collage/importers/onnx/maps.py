"""What classifiers give that is no tensor: maps from labels to numbers, and strings for labels.

A map for each row has numbers, which stand there in the order of the labels. Which class a string
names, is a number; the strings stand in the file in that order.
"""

from __future__ import annotations

import logging

import onnx
from onnx import TensorProto, helper

from collage.importers.onnx.support import node_label

_log = logging.getLogger(__name__)

_STRINGS = "classlabels_strings"
_NUMBERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""Classifiers, and what their labels are called where they are whole numbers."""


def without_maps(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that gives the tables of numbers that ``ZipMap`` would take apart, under their names.

    Parameters
    ----------
    model : onnx.ModelProto
        Is not changed; is what is returned where it gives no maps.

    Returns
    -------
    onnx.ModelProto
        A table has a row for each map, and a column for each label.
    """
    given = {value.name for value in model.graph.output}
    if not any(_gives_maps(node, given) for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    outputs = {value.name: value for value in changed.graph.output}
    for node in changed.graph.node:
        if not _gives_maps(node, given):
            continue
        name = node.output[0]
        _log.warning(
            "output '%s' is a map for each row (ZipMap); a table is given in its place, with a"
            " column for each of the labels %s",
            *(name, _labels(node)),
        )
        kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
        outputs[name].type.CopyFrom(kind)
        same = helper.make_node("Identity", node.input, node.output, node_label(node))
        node.CopyFrom(same)
    if not any(o.domain in ("", "ai.onnx") for o in changed.opset_import):
        changed.opset_import.append(helper.make_opsetid("", 13))
    return changed


def _gives_maps(node: onnx.NodeProto, outputs: set[str]) -> bool:
    return node.op_type == "ZipMap" and node.domain == "ai.onnx.ml" and set(node.output) <= outputs


def _labels(node: onnx.NodeProto) -> list[object]:
    """Numbers, or strings."""
    found = [item for each in node.attribute for item in helper.get_attribute_value(each)]
    return [item.decode() if isinstance(item, bytes) else item for item in found]


def with_numbers_for_labels(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose classifiers give numbers of classes, from 0 on, where they gave strings.

    Parameters
    ----------
    model : onnx.ModelProto
        Is not changed; is what is returned where no classifier gives strings out of the model.

    Returns
    -------
    onnx.ModelProto
        Classifiers whose strings are computed with are as they were.
    """
    read = {name for node in model.graph.node for name in node.input}
    if not any(_gives_strings(node, read) for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    outputs = {value.name: value for value in changed.graph.output}
    for node in changed.graph.node:
        if not _gives_strings(node, read):
            continue
        given = next(a for a in node.attribute if a.name == _STRINGS)
        strings = [item.decode() for item in given.strings]
        node.attribute.remove(given)
        numbers = list(range(len(strings)))
        node.attribute.append(helper.make_attribute(_NUMBERS[node.op_type], numbers))
        name = node.output[0]
        if name in outputs:
            _log.warning(
                "output '%s' has strings; the numbers of classes are given in their place, from 0"
                " on in this order: %s",
                *(name, strings),
            )
            outputs[name].type.tensor_type.elem_type = TensorProto.INT64
    return changed


def _gives_strings(node: onnx.NodeProto, read: set[str]) -> bool:
    """Whether it is a classifier whose labels are strings that nothing in the model reads."""
    if node.domain != "ai.onnx.ml" or node.op_type not in _NUMBERS or not node.output:
        return False
    labelled = any(a.name == _STRINGS and a.strings for a in node.attribute)
    return labelled and node.output[0] not in read
