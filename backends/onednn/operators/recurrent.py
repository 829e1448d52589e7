"""Importer of recurrent layers."""

from __future__ import annotations

from tvm import relax

from collage.backends.onednn.graph import Node, OpKind, Tensor
from collage.backends.onednn.partition import HANDLERS, Importer
from collage.backends.relax.recurrent import DIRECTIONS, NAME
from collage.backends.relax.recurrent.layer import RecurrentLayer

CELLS = {
    "lstm": (0, 2, 3, 1),
    "gru": (0, 1, 2),
    "gru_reset_after": (0, 1, 2),
    "rnn_tanh": (0,),
    "rnn_relu": (0,),
}
"""Kinds of cell in the order of ``templates/operators/recurrent.h``, with the places of oneDNN's
gates among the operator's. oneDNN fills an LSTM's gates in the order i, f, c, o."""


def _recurrent(imp: Importer, call: relax.Call) -> list[Tensor]:
    layer = RecurrentLayer.of(call, imp.resolved)
    if layer is None or layer.recurrence.has_lengths:
        raise imp.error("a recurrent operator is no layer of oneDNN's")
    one, graph = layer.recurrence, imp.graph
    directions, order = len(one.backwards), CELLS[one.cell]
    packed = (layer.input_weights(order), layer.weights(order), layer.bias(order))
    inputs = [imp.tensor(layer.x), *(Tensor.constant(array[None]) for array in packed)]
    state = (1, directions, one.batch, one.hidden)
    names = ("h0", "c0")[: one.states]
    inputs += [graph.reshape(imp.tensor(layer.operands[name]), state) for name in names]
    ints = [list(CELLS).index(one.cell), list(DIRECTIONS).index(one.direction)]
    lasts = [Tensor(state) for _ in names]
    # Both directions side by side.
    output = Tensor((one.steps, one.batch, directions * one.hidden))
    graph.nodes.append(Node(OpKind.RECURRENT, inputs, output, ints, others=lasts))
    if directions == 2:
        apart = graph.reshape(output, (one.steps, one.batch, 2, one.hidden))
        swapped = (one.steps, 2, one.batch, one.hidden)
        output = graph.add(OpKind.PERMUTE, [apart], swapped, [0, 2, 1, 3])
    every = graph.reshape(output, (one.steps, *state[1:]))
    return [every, *(graph.reshape(last, state[1:]) for last in lasts)]


HANDLERS[NAME] = _recurrent
