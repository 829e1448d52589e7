"""A Loop as one of states alone, of which the first says whether there is another round.

Rows that rounds give become a state of as many rows as there may be, into which every round writes
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.importers.courses.values import Value
from collage.importers.onnx.courses.values import (
    Constants,
    body_results,
    body_under,
    graph_attribute,
)
from collage.importers.onnx.support import is_row, node_label

ROUNDS, DOMAIN = "Rounds", "collage"
"""The operator that Loops become; nobody else sees it."""

MOST_ROWS = 1 << 16
"""Every round writes its row into a copy of all."""


@dataclass(frozen=True)
class Rounds:
    """A Loop that was rewritten.

    Attributes
    ----------
    before : list of onnx.NodeProto
        What its states need before the first round.
    node : onnx.NodeProto
        The loop: its states in and out, the rows behind them; and its body likewise.
    after : list of onnx.NodeProto
        What is computed from them afterwards.
    counts : dict of str to str
        Of results with as many rows as there were rounds, what says how many these were.
    """

    before: list[onnx.NodeProto]
    node: onnx.NodeProto
    after: list[onnx.NodeProto]
    counts: dict[str, str]


class _Nodes:
    """New nodes, and the constants that they read."""

    def __init__(self, prefix: str, constants: Constants) -> None:
        self.made: list[onnx.NodeProto] = []
        self._prefix = prefix
        self._constants = constants

    def constant(self, name: str, value: object, dtype: str) -> str:
        return self._constants.add(self._prefix + name, np.asarray(value, dtype))

    def emit(self, name: str, operator: str, *inputs: str) -> str:
        output = self._prefix + name
        self.made.append(helper.make_node(operator, list(inputs), [output], output))
        return output


def is_loop_of_known_rounds(node: onnx.NodeProto, constants: Constants, most: int) -> bool:
    """Whether a loop is written out round by round, in no more than so many nodes.

    Parameters
    ----------
    node : onnx.NodeProto
        The Loop.
    constants : Constants
        What is known.
    most : int
        Nodes.

    Returns
    -------
    bool
        Also for one that runs not once.
    """
    body = graph_attribute(node, "body")
    trips = constants.array(node.input[0]) if node.input and node.input[0] else None
    given = node.input[1] if len(node.input) > 1 else ""
    condition = constants.array(given) if given else np.array(True)
    if condition is not None and not condition.all():
        return True
    if trips is None or condition is None or not _always_goes_on(body):
        return False
    plain = not any(inner.op_type in ("If", "Loop") for inner in body.node)
    return plain and int(trips.item()) * len(body.node) <= most


def as_rounds(node: onnx.NodeProto, prefix: str, constants: Constants) -> Rounds:
    """A Loop with its rounds counted.

    Parameters
    ----------
    node : onnx.NodeProto
        The Loop.
    prefix : str
        Before the names of what is new.
    constants : Constants
        Get some more.

    Returns
    -------
    Rounds
        In its place.
    """
    body = body_under(graph_attribute(node, "body"), prefix)
    states = list(node.input[2:])
    condition = node.input[1] if len(node.input) > 1 else ""
    limit, known = _limit(node.input[0] if node.input else "", constants)
    before, inner, after = (_Nodes(prefix, constants) for _ in range(3))
    scalar = before.constant("scalar", [], "int64")
    zero, one = (before.constant(f"number_{n}", n, "int64") for n in (0, 1))
    going = before.constant("true", True, "bool")
    if condition:
        going = before.emit("condition", "Reshape", condition, scalar)
    if limit:
        limit = before.emit("limit", "Reshape", limit, scalar)
        some = before.emit("some", "Less", zero, limit)
        going = before.emit("going", "And", going, some) if condition else some

    results = body_results(body)
    alive, counter = body.input[1].name, body.input[0].name
    rows_inside = [value.name for value in body.input[:2] if is_row(value)]
    for name in rows_inside:
        width = inner.constant("width_inside", [1], "int64")
        inner.made.append(helper.make_node("Reshape", [f"{name}_alone", width], [name]))
    alive, counter = (f"{n}_alone" if n in rows_inside else n for n in (alive, counter))
    inner.made += body.node
    again = inner.emit("again", "Reshape", results[0], scalar)
    following = inner.emit("following", "Add", counter, one)
    if limit:
        again = inner.emit("both", "And", again, inner.emit("fewer", "Less", following, limit))
    outputs = list(node.output) + [""] * (len(results) - 1 - len(node.output))
    outputs = [name or f"{prefix}unused_{index}" for index, name in enumerate(outputs)]
    counts: dict[str, str] = {}
    rows = outputs[len(states) :]
    if rows and (condition or known is None or not _always_goes_on(body)):
        count = after.emit(
            "count", "Reshape", prefix + "rounds", after.constant("width", [1], "int64")
        )
        counts = dict.fromkeys(rows, count)
    graph = _graph(
        inner.made,
        [alive, counter, *(value.name for value in body.input[2:])],
        [again, following, *results[1:]],
    )
    for tensor in body.initializer:
        constants.tensors[tensor.name] = tensor
    loop = helper.make_node(
        *(ROUNDS, [going, zero, *states], [prefix + "stopped", prefix + "rounds", *outputs]),
        *(node_label(node),),
        domain=DOMAIN,
        body=graph,
        most=-1 if known is None else known,
    )
    return Rounds(before.made, loop, after.made, counts)


def with_rows(
    node: onnx.NodeProto, prefix: str, constants: Constants, rows: Sequence[Value]
) -> onnx.NodeProto:
    """A loop that writes the rows of its rounds into states.

    Parameters
    ----------
    node : onnx.NodeProto
        As :func:`as_rounds` made it.
    prefix : str
        Before the names of what is new.
    constants : Constants
        Get some more.
    rows : sequence of Value
        What every round gives besides the states.

    Returns
    -------
    onnx.NodeProto
        With a state more for each of them.

    Raises
    ------
    ModelError
        When nobody knows how many there are at most.
    """
    (most,) = (a.i for a in node.attribute if a.name == "most")
    if not 0 <= most <= MOST_ROWS:
        label = f"{node_label(node)} (Loop)"
        raise ModelError(
            f"{label} cannot be imported: how many rows it gives depends on data, without a limit "
            f"of at most {MOST_ROWS}",
            value=label,
        )
    body = graph_attribute(node, "body")
    results = body_results(body)
    first = len(results) - len(rows)
    inner = _Nodes(prefix, constants)
    inner.made += body.node
    place = inner.emit(
        "place", "Reshape", body.input[1].name, inner.constant("one_place", [1, 1], "int64")
    )
    taken, given = [value.name for value in body.input], list(results[:first])
    initial = list(node.input)
    for index, (row, value) in enumerate(zip(results[first:], rows, strict=True)):
        shape = inner.constant(f"row_shape_{index}", [1, *value.shape], "int64")
        lifted = inner.emit(f"row_{index}", "Reshape", row, shape)
        taken.append(f"{prefix}rows_{index}")
        given.append(inner.emit(f"more_{index}", "ScatterND", taken[-1], place, lifted))
        empty = np.zeros((most, *value.shape), value.dtype)
        initial.append(constants.add(f"{prefix}no_rows_{index}", empty))
    return helper.make_node(
        *(ROUNDS, initial, list(node.output), node.name),
        domain=DOMAIN,
        body=_graph(inner.made, taken, given),
        most=most,
    )


def _graph(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.GraphProto:
    values = [
        [helper.make_empty_tensor_value_info(name) for name in names] for names in (inputs, outputs)
    ]
    return helper.make_graph(list(nodes), "rounds", *values)


def _limit(name: str, constants: Constants) -> tuple[str, int | None]:
    """What says how many rounds there are at most, and its value where that is known."""
    array = constants.array(name) if name else None
    if array is None:
        return name, None
    known = int(array.item())
    # The largest number stands for no limit.
    return ("", None) if known >= np.iinfo("int64").max else (name, max(known, 0))


def _always_goes_on(body: onnx.GraphProto) -> bool:
    """Whether the body of a Loop leaves its condition as it is, or says that it holds."""
    made = {name: node for node in body.node for name in node.output}
    constants = {tensor.name: tensor for tensor in body.initializer}
    name = body.output[0].name
    while name in made and made[name].op_type in ("Identity", "Cast"):
        name = made[name].input[0]
    if name in made and made[name].op_type == "Constant":
        value = next((a.t for a in made[name].attribute if a.name == "value"), None)
        constants |= {} if value is None else {name: value}
    if name in constants:
        return bool(onnx.numpy_helper.to_array(constants[name]).all())
    return bool(name == body.input[1].name)
