"""If, Loop and Scan as straight lines, so that their bodies are searched like everything else.

A condition that is known chooses its branch. Of one that is not, both branches are computed and the
results selected: nothing in ONNX has side effects. Loops are unrolled; one that may end early keeps
its last state from then on. How often at most has to be known, and shapes may not depend on it.
What that is not right for, or not worth, is cut into parts (``courses``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.importers.onnx.known import inferred_shapes, settle
from collage.importers.onnx.straight.line import Line
from collage.importers.onnx.straight.refusals import (
    SHAPE_DEPENDS,
    DataDecideError,
    declared_shape,
    refusal,
    require_cheap,
    require_tensors,
)
from collage.importers.onnx.straight.scanned import Scanned
from collage.importers.onnx.support import is_row, node_label

_CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")

_MOST_NODES = 20_000
"""An unrolled graph with more nodes than this takes hours to search."""

_DEEPEST = 16
"""Levels of nested bodies."""


def flatten(model: onnx.ModelProto, *, at_any_price: bool = True) -> onnx.ModelProto:
    """The same graph without If, Loop and Scan, or the model itself where there are none.

    Parameters
    ----------
    model : onnx.ModelProto
        Its shapes are numbers.
    at_any_price : bool
        Whether products may be computed that are then not chosen.

    Returns
    -------
    onnx.ModelProto
        A copy, or what was given.

    Raises
    ------
    DataDecideError
        Names a node whose trip count or shapes depend on data, with the reason.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[2] x) => (float[2] y) {
    ...         flag = Constant<value = bool {1}>()
    ...         y = If(flag)<
    ...             then_branch = yes () => (float[2] a) { a = Relu(x) },
    ...             else_branch = no () => (float[2] b) { b = Neg(x) }>
    ...     }'''
    ... )
    >>> [node.op_type for node in flatten(model).graph.node]
    ['Relu', 'Identity']
    """
    selected: list[tuple[str, str, str]] = []
    for level in range(_DEEPEST):
        if not any(_is_control_flow(node) for node in model.graph.node):
            for _, _, label in selected:
                raise refusal(label, SHAPE_DEPENDS)
            return model
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        flat = _Flat(copy, f"level{level}_", at_any_price=at_any_price)
        flat.selected = selected
        for node in model.graph.node:
            flat.add(node)
        settle(copy, flat.nodes, flat.known)
        selected = flat.require_same_shapes(copy)
        model = copy
    raise ModelError(f"control flow is nested deeper than {_DEEPEST} levels", value=_DEEPEST)


def _is_control_flow(node: onnx.NodeProto) -> bool:
    return node.op_type in _CONTROL_FLOW and node.domain in ("", "ai.onnx")


@dataclass
class _Flat(Line):
    """Nodes in a straight line, written one after the other.

    Attributes
    ----------
    at_any_price : bool
        Whether products may be computed that are then not chosen.
    """

    at_any_price: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expanded = False

    def add(self, node: onnx.NodeProto, *, expand: bool = True) -> None:
        """Write a node; with its body in its place, if it has one."""
        if expand and _is_control_flow(node) and not self._waits(node):
            self._expanded = True
            write = {
                "If": self._if, "Loop": self._loop, "Scan": self._scan, "SequenceMap": self._map,
            }  # fmt: skip
            write[node.op_type](node)
        elif not self.known.learn(node):
            self.nodes.append(node)
            if len(self.nodes) > _MOST_NODES:
                raise DataDecideError(
                    f"unrolled, the loops of the model have more than {_MOST_NODES} nodes",
                    value=len(self.nodes),
                )

    def _waits(self, node: onnx.NodeProto) -> bool:
        """Whether a choice, or how often a loop runs, goes by a shape that may be known once other
        bodies are written out."""
        if node.op_type in ("Scan", "SequenceMap") or not self._expanded:
            return False
        made = {name: inner for inner in self.nodes for name in inner.output}
        deciding = node.input[: 1 if node.op_type == "If" else 2]
        names, seen = [name for name in deciding if name not in self.known.values], set[str]()
        while names:
            name = names.pop()
            if name in made and name not in seen:
                seen.add(name)
                if made[name].op_type in ("Shape", "Size"):
                    return True
                names += made[name].input
        return False

    def require_same_shapes(self, flat: onnx.ModelProto) -> list[tuple[str, str, str]]:
        """Refuse a choice between values of different shapes.

        Returns
        -------
        list
            Choices between values that are not both known: a node with a body, which comes to
            stand in a straight line at the next level, may stand before them.

        Raises
        ------
        ModelError
            When the shapes are known and differ; names the operator that chooses.
        """
        if not self.selected:
            return []
        shapes = inferred_shapes(flat)
        shapes.update((name, value.shape) for name, value in self.known.values.items())
        unknown = []
        for first, second, label in self.selected:
            if first not in shapes or second not in shapes:
                unknown.append((first, second, label))
            elif shapes[first] != shapes[second]:
                raise refusal(label, SHAPE_DEPENDS)
        return unknown

    def _if(self, node: onnx.NodeProto) -> None:
        label = node_label(node)
        branches = {a.name: a.g for a in node.attribute}
        condition = node.input[0]
        known = self.known.values.get(condition)
        if known is not None:
            chosen = branches["then_branch" if bool(known.any()) else "else_branch"]
            for output, value in zip(node.output, self._inline(chosen, []), strict=False):
                self._bind(output, value)
            return
        for graph in branches.values():
            require_tensors(graph, f"{label} (If)")
            self._require_cheap(graph, f"{label} (If)")
        first, second = (
            self._inline(branches[f"{which}_branch"], []) for which in ("then", "else")
        )
        condition = self._scalar(condition)
        for output, one, other in zip(node.output, first, second, strict=False):
            self._bind(output, self._select(condition, one, other, f"{label} (If)"))

    def _loop(self, node: onnx.NodeProto) -> None:
        label = f"{node_label(node)} (Loop)"
        (body,) = [a.g for a in node.attribute if a.name == "body"]
        most = self._trip_count(node.input[0] if node.input else "", label)
        condition = node.input[1] if len(node.input) > 1 else ""
        states = list(node.input[2:])
        rows: list[list[str]] = [[] for _ in range(len(body.output) - 1 - len(states))]
        alive = self._as_condition(condition)
        trip = 0
        while alive is not False and (most is None or trip < most):
            if most is None and alive is not True:
                raise refusal(label, "how often it runs depends on data, without a limit")
            going = self._constant(True, "bool") if alive is True else alive
            given = [self._constant(trip, "int64"), going]
            # Rows of one element, where a body asks for such.
            for place, value in enumerate(body.input[:2]):
                if is_row(value):
                    width = self._constant([1], "int64")
                    given[place] = self._emit("Reshape", [given[place], width])
            results = self._inline(body, [*given, *states])
            carried = results[1 : 1 + len(states)]
            if alive is not True:
                self._require_cheap(body, label)
            if alive is not True and rows:
                raise refusal(label, "how many rows it gives depends on data")
            if alive is not True:
                carried = [
                    self._select(alive, new, old, label)
                    for new, old in zip(carried, states, strict=True)
                ]
            states = carried
            for row, value in zip(rows, results[1 + len(states) :], strict=True):
                row.append(self._along(value, 0))
            again = self._as_condition(results[0])
            if isinstance(alive, str) and isinstance(again, str):
                alive = self._emit("And", [alive, self._scalar(again)])
            elif again is not True:
                alive = self._scalar(again) if isinstance(again, str) else False
            trip += 1
        gathered = [
            self._stacked(row, 0, value, label)
            for row, value in zip(rows, body.output[1 + len(states) :], strict=True)
        ]
        for output, value in zip(node.output, [*states, *gathered], strict=False):
            self._bind(output, value)

    def _require_cheap(self, body: onnx.GraphProto, label: str) -> None:
        if not self.at_any_price:
            require_cheap(body, label)

    def _trip_count(self, name: str, label: str) -> int | None:
        if not name:
            return None
        known = self.known.values.get(name)
        if known is None:
            raise refusal(label, "how often it runs depends on data")
        # The largest number stands for no limit.
        return None if int(known.item()) >= np.iinfo("int64").max else int(known.item())

    def _as_condition(self, name: str) -> bool | str:
        known = self.known.values.get(name)
        if not name:
            return True
        return name if known is None else bool(known.any())

    def _stacked(
        self, row: Sequence[str], axis: int, value: onnx.ValueInfoProto, label: str
    ) -> str:
        if len(row) > 1:
            return self._emit("Concat", row, axis=axis)
        if row:
            return row[0]
        shape = declared_shape(value, label)
        shape.insert(axis, 0)
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        return self._constant(np.zeros(shape, dtype), str(dtype))

    def _map(self, node: onnx.NodeProto) -> None:
        """A body for each tensor of a sequence."""
        label = f"{node_label(node)} (SequenceMap)"
        trip = self.known.lengths.get(node.input[0])
        if trip is None:
            raise refusal(label, "how many tensors its sequence holds depends on data")
        (body,) = [a.g for a in node.attribute if a.name == "body"]
        rows: list[list[str]] = [[] for _ in body.output]
        for step in range(trip):
            place = self._constant(step, "int64")
            given = [
                self._emit("SequenceAt", [name, place]) if name in self.known.lengths else name
                for name in node.input
            ]
            for row, value in zip(rows, self._inline(body, given), strict=True):
                row.append(value)
        for output, row, value in zip(node.output, rows, body.output, strict=False):
            kind = {} if row else {"dtype": value.type.tensor_type.elem_type}
            operator = "SequenceConstruct" if row else "SequenceEmpty"
            self.add(helper.make_node(operator, row, [output], name=output, **kind))

    def _scan(self, node: onnx.NodeProto) -> None:
        label = f"{node_label(node)} (Scan)"
        if self._opset < 9:
            raise refusal(label, "operator set 8 defines it with batches; convert the model to 9")
        scanned = Scanned.of(node, self.known.shapes, label)
        body, states, trip = scanned.body, scanned.states, scanned.trip
        rows: list[list[str]] = [[] for _ in scanned.out_axes]
        for step in range(trip):
            slices = [
                self._emit(
                    "Gather",
                    [name, self._constant(trip - 1 - step if axis.backwards else step, "int64")],
                    axis=axis.number,
                )
                for name, axis in zip(scanned.inputs, scanned.axes, strict=True)
            ]
            results = self._inline(body, [*states, *slices])
            states = results[: len(states)]
            for row, value, axis in zip(
                rows, results[len(states) :], scanned.out_axes, strict=True
            ):
                row.append(self._along(value, axis.number))
        gathered = [
            self._stacked(row[::-1] if axis.backwards else row, axis.number, value, label)
            for row, axis, value in zip(
                rows, scanned.out_axes, body.output[len(states) :], strict=True
            )
        ]
        for output, value in zip(node.output, [*states, *gathered], strict=False):
            self._bind(output, value)
