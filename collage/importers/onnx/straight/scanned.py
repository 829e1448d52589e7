"""What a Scan goes over: which tensors, along which axes, which way, and for how many rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx
from onnx import helper

from collage.importers.onnx.straight.refusals import refusal


@dataclass(frozen=True)
class Axis:
    """An axis along which rounds take their slice, or put it.

    Attributes
    ----------
    number : int
        Counted from the front, in what is scanned.
    backwards : bool
        Whether the first round has the last slice.
    """

    number: int
    backwards: bool


@dataclass(frozen=True)
class Scanned:
    """The attributes of a Scan, written out.

    Attributes
    ----------
    body : onnx.GraphProto
        Run in each round.
    states, inputs : list of str
        What rounds hand on, and what they go over.
    trip : int
        How many rounds there are.
    axes, out_axes : list of Axis
        Of what is scanned, and of what rounds give besides their states.
    """

    body: onnx.GraphProto
    states: list[str]
    inputs: list[str]
    trip: int
    axes: list[Axis]
    out_axes: list[Axis]

    @classmethod
    def of(cls, node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], label: str) -> Scanned:
        """Read a node.

        Parameters
        ----------
        node : onnx.NodeProto
            A Scan of operator set 9 or later.
        shapes : mapping of str to tuple of int
            What is known of them.
        label : str
            The node, as errors name it.

        Returns
        -------
        Scanned
            With every default written out.

        Raises
        ------
        DataDecideError
            When it is not known how many rounds there are.
        """
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        body, count = attributes["body"], int(attributes["num_scan_inputs"])
        states, inputs = list(node.input[:-count]), list(node.input[-count:])
        known = [shapes[name] for name in inputs if name in shapes]
        if len(known) < count:
            raise refusal(label, "how long what it scans is depends on data")
        numbers = attributes.get("scan_input_axes", [0] * count)
        axes = [
            Axis(number % len(shape), bool(back))
            for number, shape, back in zip(
                *(numbers, known, attributes.get("scan_input_directions", [0] * count)),
                strict=True,
            )
        ]
        trips = {shape[axis.number] for shape, axis in zip(known, axes, strict=True)}
        if len(trips) != 1:
            raise refusal(label, f"what it scans is of different lengths: {sorted(trips)}")
        (trip,) = trips
        outputs = len(body.output) - len(states)
        out_numbers = attributes.get("scan_output_axes", [0] * outputs)
        turned = attributes.get("scan_output_directions", [0] * outputs)
        out_axes = [Axis(n, bool(back)) for n, back in zip(out_numbers, turned, strict=True)]
        return cls(body, states, inputs, trip, axes, out_axes)
