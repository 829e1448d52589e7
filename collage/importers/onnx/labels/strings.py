"""Strings that a model only chooses among: numbers of strings in a list that stands in the file.

Labels come from classifiers, encoders and constant lists. They are moved, chosen, compared and
looked up, for which their numbers do as well. Values that meet share one list.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage.importers.onnx.support import all_nodes

_log = logging.getLogger(__name__)

_CLASSIFIERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""What their labels are called where they are whole numbers."""

_STRINGS = "classlabels_strings"

_MOVED: dict[str, Sequence[int]] = {
    **dict.fromkeys(("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"), (0,)),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "ArrayFeatureExtractor"), (0,)),
    **dict.fromkeys(("Slice", "Split", "Expand", "Tile", "Compress"), (0,)),
    "Where": (1, 2),
}
"""Which operands' elements results have; all of a concatenation."""

_ASKED = frozenset(["Equal", "Shape", "Size"])
"""What reads strings and gives none."""

_UNSAID = "_Unused"
"""What an encoder gives in place of a string that it does not know, unless it is told."""

_ABSENT = -1
"""The number of a key that no value can have."""


def with_numbers_for_labels(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that has numbers of strings, from 0 on, where it chooses among strings.

    Parameters
    ----------
    model : onnx.ModelProto
        Is not changed; is what is returned where it has no strings, or does more with them.

    Returns
    -------
    onnx.ModelProto
        Outputs that were strings are numbers, and a warning says of what.

    Examples
    --------
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]> net (int64[4] x) => (string[4] y)
    ...     { names = Constant<value_strings = ["cat", "dog"]>() y = Gather(names, x) }'''
    ... )
    >>> changed = with_numbers_for_labels(net)
    >>> changed.graph.node[0].attribute[0].ints, changed.graph.output[0].type.tensor_type.elem_type
    ([0, 1], 7)
    """
    graph = model.graph
    if not any(True for _ in _sources(graph)):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    lists = _Lists(changed.graph)
    if not lists.complete:
        return model
    lists.write()
    return changed


def _sources(graph: onnx.GraphProto) -> Iterator[tuple[str, list[str], Any]]:
    """Values that are strings of the file's own, their strings, and where these stand."""
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.STRING:
            yield tensor.name, _texts(tensor.string_data), tensor
    for node in graph.node:
        found = _said(node)
        if found is not None:
            yield node.output[0], found, node


def _texts(strings: Sequence[bytes]) -> list[str]:
    return [item.decode(errors="replace") for item in strings]


def _given(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: a for a in node.attribute}


def _listed(node: onnx.NodeProto, role: str) -> list[str] | None:
    """The strings that an encoder has as keys or as values."""
    given = _given(node)
    if f"{role}_strings" in given:
        return _texts(given[f"{role}_strings"].strings)
    tensor = given.get(f"{role}_tensor")
    if tensor is not None and tensor.t.data_type == TensorProto.STRING:
        return _texts(tensor.t.string_data)
    return None


def _said(node: onnx.NodeProto) -> list[str] | None:
    """The strings that a node itself brings into the graph."""
    given = _given(node)
    if node.domain == "ai.onnx.ml" and node.op_type in _CLASSIFIERS:
        labels = given.get(_STRINGS)
        return _texts(labels.strings) if labels is not None and labels.strings else None
    if node.domain == "ai.onnx.ml" and node.op_type == "LabelEncoder":
        values = _listed(node, "values")
        return None if values is None else [*values, _rest(node)]
    if node.domain in ("", "ai.onnx") and node.op_type == "Constant":
        if "value_string" in given:
            return _texts([given["value_string"].s])
        if "value_strings" in given:
            return _texts(given["value_strings"].strings)
        if "value" in given and given["value"].t.data_type == TensorProto.STRING:
            return _texts(given["value"].t.string_data)
    return None


def _rest(node: onnx.NodeProto) -> str:
    given = _given(node)
    if "default_tensor" in given:
        return _texts(given["default_tensor"].t.string_data)[0]
    return _texts([given["default_string"].s])[0] if "default_string" in given else _UNSAID


class _Lists:
    """Which values are strings of which list."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._parent: dict[str, str] = {}
        self._strings: dict[str, list[str]] = defaultdict(list)
        self._readers: list[onnx.NodeProto] = []
        self.complete = True
        sources = {name: strings for name, strings, _ in _sources(graph)}
        for name in sources:
            self._parent[name] = name
        for node in graph.node:
            self._follow(node)
        for name, strings in sources.items():
            known = self._strings[self._list(name)]
            known += [item for item in dict.fromkeys(strings) if item not in known]
        inner = [each for node in graph.node for each in _inside(node)]
        self.complete &= not any(name in self._parent for each in inner for name in each.input)

    def _list(self, name: str) -> str:
        while self._parent[name] != name:
            name = self._parent[name]
        return name

    def _join(self, names: Sequence[str]) -> None:
        first = self._list(names[0])
        for name in names[1:]:
            self._parent[self._list(name)] = first

    def _follow(self, node: onnx.NodeProto) -> None:
        read = [name for name in node.input if name in self._parent]
        if not read:
            return
        onnx_own = node.domain in ("", "ai.onnx") or node.op_type == "ArrayFeatureExtractor"
        moved = range(len(node.input)) if node.op_type == "Concat" else _MOVED.get(node.op_type, ())
        if onnx_own and (moved or node.op_type == "Equal"):
            places = moved or (0, 1)
            operands = [node.input[i] for i in places if i < len(node.input)]
            # What is compared or joined with strings from elsewhere is left as it is.
            self.complete &= operands == [n for n in operands if n in self._parent]
            self.complete &= set(read) <= set(operands)
            if not self.complete:
                return
            self._join(operands)
            if moved:
                for name in node.output:
                    self._parent[name] = self._list(operands[0])
        elif not (onnx_own and node.op_type in _ASKED):
            looked_up = node.op_type == "LabelEncoder" and _listed(node, "keys") is not None
            self.complete &= looked_up and node.domain == "ai.onnx.ml"
            self._readers.append(node)

    def write(self) -> None:
        """Numbers in the place of all strings."""
        for node in self._readers:
            known = self._strings[self._list(node.input[0])]
            keys = [known.index(k) if k in known else _ABSENT for k in _listed(node, "keys") or ()]
            _replace(node, ("keys_strings", "keys_tensor"), "keys_int64s", keys)
        for name, _, place in list(_sources(self._graph)):
            self._number(self._strings[self._list(name)].index, place)
        for value in [*self._graph.value_info, *self._graph.output]:
            if (
                value.type.tensor_type.elem_type == TensorProto.STRING
                and value.name in self._parent
            ):
                value.type.tensor_type.elem_type = TensorProto.INT64
        for value in self._graph.output:
            if value.name in self._parent:
                _log.warning(
                    "output '%s' has strings; the numbers of classes are given in their place,"
                    " from 0 on in this order: %s",
                    *(value.name, self._strings[self._list(value.name)]),
                )

    @staticmethod
    def _number(number: Callable[[str], int], place: Any) -> None:
        if isinstance(place, onnx.TensorProto):
            place.CopyFrom(_numbered(place, number))
        elif place.op_type == "Constant":
            (only,) = place.attribute
            if only.name == "value":
                only.t.CopyFrom(_numbered(only.t, number))
            elif only.name == "value_string":
                _replace(place, (only.name,), "value_int", number(_texts([only.s])[0]))
            else:
                _replace(place, (only.name,), "value_ints", [*map(number, _texts(only.strings))])
        elif place.op_type == "LabelEncoder":
            rest, values = number(_rest(place)), _listed(place, "values") or []
            _replace(place, ("default_string", "default_tensor"), "default_int64", rest)
            numbers = [*map(number, values)]
            _replace(place, ("values_strings", "values_tensor"), "values_int64s", numbers)
        else:
            labels = _texts(_given(place)[_STRINGS].strings)
            _replace(place, (_STRINGS,), _CLASSIFIERS[place.op_type], [*map(number, labels)])


def _inside(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from all_nodes(graph)


def _numbered(tensor: onnx.TensorProto, number: Callable[[str], int]) -> onnx.TensorProto:
    numbers = np.asarray([*map(number, _texts(tensor.string_data))], "int64")
    return numpy_helper.from_array(numbers.reshape(tuple(tensor.dims)), tensor.name)


def _replace(node: onnx.NodeProto, names: Sequence[str], name: str, value: Any) -> None:
    for one in [a for a in node.attribute if a.name in names]:
        node.attribute.remove(one)
    kind = onnx.AttributeProto.INTS if isinstance(value, list) else onnx.AttributeProto.INT
    node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
