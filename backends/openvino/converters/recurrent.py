"""Converter of recurrent layers."""

from __future__ import annotations

from tvm import relax

from collage.backends.openvino.model import OvTensor
from collage.backends.openvino.problem import CONVERTERS, RegionWriter
from collage.backends.relax.recurrent import NAME
from collage.backends.relax.recurrent.layer import RecurrentLayer

_ORDERS = {"lstm": (2, 0, 3, 1), "gru": (0, 1, 2), "gru_reset_after": (0, 1, 2)}
"""Places of OpenVINO's gates among the operator's: it fills an LSTM's in the order f, i, c, o."""


def _recurrent(w: RegionWriter, call: relax.Call) -> list[OvTensor]:
    layer = RecurrentLayer.of(call, w.resolved)
    if layer is None:
        raise w.error("a recurrent operator is no layer of OpenVINO's")
    one, order = layer.recurrence, _ORDERS.get(layer.recurrence.cell, (0,))
    # Batch first, by direction the rows of all gates.
    x = w.permute(w.tensor(layer.x), (1, 0, 2))
    names = ("h0", "c0")[: one.states]
    states = [w.permute(w.tensor(layer.operands[name]), (1, 0, 2)) for name in names]
    lengths = known = w.integers([one.steps] * one.batch)
    if one.has_lengths:
        # It takes no sequence that is empty, nor one that is longer than all.
        lengths = w.tensor(layer.operands["lengths"])
        least, most = (w.number(bound, lengths) for bound in (1, one.steps))
        known = w.op.minimum(w.op.maximum(lengths, least), most).output(0)
    rows = len(one.backwards), one.gates * one.hidden
    weights = [
        w.constant(array.transpose(0, 2, 3, 1).reshape(*rows, -1))
        for array in (layer.input_weights(order), layer.weights(order))
    ]
    bias = w.constant(layer.bias(order).reshape(rows[0], -1))
    given = (x, *states, known, *weights, bias, one.hidden, one.direction)
    match one.cell:
        case "lstm":
            made = w.op.lstm_sequence(*given)
        case "gru" | "gru_reset_after":
            made = w.op.gru_sequence(*given, linear_before_reset=one.has_bias)
        case _:
            made = w.op.rnn_sequence(*given, activations=[one.cell.removeprefix("rnn_")])
    every, *lasts = made.outputs()
    if one.has_lengths:
        every = _unless_empty(w, lengths, every, w.number(0, every))
        pairs = zip(lasts, states, strict=True)
        lasts = [_unless_empty(w, lengths, last, state) for last, state in pairs]
    return [w.permute(every, (2, 1, 0, 3)), *(w.permute(last, (1, 0, 2)) for last in lasts)]


def _unless_empty(w: RegionWriter, lengths: OvTensor, made: OvTensor, other: OvTensor) -> OvTensor:
    """What was made of sequences that have steps; the other's values of those that have none."""
    live = w.op.greater(lengths, w.number(0, lengths)).output(0)
    rows = (-1,) + (1,) * (len(w.shape(made)) - 1)
    return w.op.select(w.op.reshape(live, w.integers(rows), False), made, other).output(0)


CONVERTERS[NAME] = _recurrent
