"""Maps from labels to numbers, one for each row, as classifiers give them.

Their numbers stand there in the order of the labels.
"""

from __future__ import annotations

import logging

import onnx
from onnx import TensorProto, helper

from collage.importers.onnx.support import node_label

_log = logging.getLogger(__name__)


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

    Examples
    --------
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    ...     net (float[4, 2] x) => (seq(map(int64, float)) y)
    ...     { y = ai.onnx.ml.ZipMap<classlabels_int64s = [3, 5]>(x) }'''
    ... )
    >>> without_maps(net).graph.node[0].op_type
    'Identity'
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
