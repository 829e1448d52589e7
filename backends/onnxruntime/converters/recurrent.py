"""Converter of recurrent layers: ONNX has the operator's gates in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from collage.backends.onnxruntime.model import Array, OrtTensor
from collage.backends.onnxruntime.problem import CONVERTERS, RegionWriter
from collage.backends.relax.recurrent import NAME
from collage.backends.relax.recurrent.layer import RecurrentLayer


def _recurrent(w: RegionWriter, call: relax.Call) -> list[OrtTensor]:
    layer = RecurrentLayer.of(call, w.resolved)
    if layer is None:
        raise w.error("a recurrent operator is no layer of ONNX's")
    one = layer.recurrence
    order, rows = range(one.gates), (len(one.backwards), one.gates * one.hidden)
    weights = [
        w.constant(array.transpose(0, 2, 3, 1).reshape(*rows, -1))
        for array in (layer.input_weights(order), layer.weights(order))
    ]
    states = [w.tensor(layer.operands[name]) for name in ("h0", "c0")[: one.states]]
    lengths = known = None
    if one.has_lengths:
        # It takes no sequence that is longer than all.
        lengths = w.tensor(layer.operands["lengths"])
        known = w.node("Clip", lengths, *(w.number(n, lengths.dtype) for n in (0, one.steps)))
    settings: dict[str, Any] = {"direction": one.direction, "hidden_size": one.hidden}
    match one.cell:
        case "lstm":
            kind = "LSTM"
        case "gru" | "gru_reset_after":
            kind = "GRU"
            settings["linear_before_reset"] = int(one.has_bias)
        case _:
            kind = "RNN"
            settings["activations"] = [one.cell.removeprefix("rnn_").title()] * rows[0]
    operands = [w.tensor(layer.x), *weights, w.constant(_biases(layer)), known, *states]
    every, *lasts = w.nodes(kind, operands, [one.dtype] * (1 + one.states), **settings)
    if lengths is not None:
        # Of a sequence without steps it says nothing.
        live = w.node("Greater", lengths, w.number(0, lengths.dtype), dtype="bool")
        live = w.reshape(live, (1, one.batch, 1))
        pairs = zip(lasts, states, strict=True)
        lasts = [w.node("Where", live, last, state, dtype=one.dtype) for last, state in pairs]
    return [every, *lasts]


def _biases(layer: RecurrentLayer) -> Array:
    """Of the input's share of the gates, then of the state's: (directions, 2 * gates * hidden)."""
    one = layer.recurrence
    given = layer.bias(range(one.gates))
    own = np.zeros((len(given), one.gates, one.hidden), given.dtype)
    if one.has_bias:
        own[:, -1] = given[:, one.gates]
    return np.concatenate([given[:, : one.gates], own], 1).reshape(len(given), -1)


CONVERTERS[NAME] = _recurrent
