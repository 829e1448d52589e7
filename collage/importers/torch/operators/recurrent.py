"""LSTM, GRU and RNN of exported programs, kept whole: taken apart they would be their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._decomp import decomposition_table
from tvm import relax
from tvm.relax import op

from collage.backends.relax.recurrent import recurrent
from collage.importers.torch.exporting.packed import NAME as OF_LENGTHS
from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of

_CELLS = {
    "lstm.input": "lstm",
    "gru.input": "gru_reset_after",
    "rnn_tanh.input": "rnn_tanh",
    "rnn_relu.input": "rnn_relu",
}

_MODES = {
    "LSTM": "lstm", "GRU": "gru_reset_after", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu",
}  # fmt: skip
"""The same by PyTorch's names of its layers' kinds."""

_ORDER = {"lstm": [0, 3, 1, 2], "gru_reset_after": [1, 0, 2]}
"""Where PyTorch has the gates (``ifgo``, ``rzn``) that the operator has in ONNX's order."""


def keep_recurrent(table: dict[Any, Any]) -> None:
    """Let a decomposition table leave recurrent layers alone.

    Those that project their state, of one step, or of which some outputs are dropped at random are
    still taken apart.
    """
    for name in _CELLS:
        operator, overload = name.split(".")
        target = getattr(getattr(torch.ops.aten, operator), overload)
        apart = table.pop(target, None) or decomposition_table[target]
        table[target] = _where_odd(apart)


def _where_odd(apart: Callable[..., Any]) -> Callable[..., Any]:
    def decompose(
        x: Any,
        state: Any,
        weights: Any,
        biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        both: bool,
        batch_first: bool,
    ) -> Any:
        directions = 2 if both else 1
        projects = len(weights) != layers * directions * (4 if biases else 2)
        steps = x.shape[1 if batch_first else 0]
        if not projects and not (train and dropout) and steps > 1:
            return NotImplemented
        return apart(
            *(x, state, weights, biases, layers, dropout, train, both, batch_first),
        )

    return decompose


def _convert(importer: Importer, node: fx.Node) -> tuple[relax.Expr, ...]:
    cell = _CELLS[node.target.__name__]
    x, state, weights, biases, layers, both, batch_first = arguments(
        *(importer, node, "input", "hx", "params", "has_biases", "num_layers"),
        *("bidirectional", "batch_first"),
    )
    emit = importer.emit
    states = list(state) if isinstance(state, list | tuple) else [state]
    directions, size = (2 if both else 1), (4 if biases else 2)
    given = [weights[i * size : (i + 1) * size] for i in range(layers * directions)]
    if batch_first:
        x = emit(op.permute_dims(x, [1, 0, 2]))
    x, *ends = _all_layers(importer, cell, x, states, given, directions)
    if batch_first:
        x = emit(op.permute_dims(x, [1, 0, 2]))
    return (x, *ends)


def _convert_with_lengths(importer: Importer, node: fx.Node) -> tuple[relax.Expr, ...]:
    """Sequences that end early: the operator of ``packed``."""
    mode, x, lengths, states, weights, biases, both = arguments(
        importer, node, "mode", "x", "lengths", "states", "weights", "biases", "both"
    )
    directions, size = (2 if both else 1), (4 if biases else 2)
    given = [weights[i : i + size] for i in range(0, len(weights), size)]
    ends = importer.emit(op.astype(lengths, "int32"))
    return tuple(_all_layers(importer, _MODES[mode], x, states, given, directions, ends))


def _all_layers(
    importer: Importer,
    cell: str,
    x: relax.Expr,
    states: Sequence[relax.Expr],
    given: Sequence[Sequence[relax.Expr]],
    directions: int,
    lengths: relax.Expr | None = None,
) -> list[relax.Expr]:
    """Layer upon layer: the outputs of the last one, and the last states of all."""
    emit = importer.emit
    lasts: list[list[relax.Expr]] = []
    for first in range(0, len(given), directions):
        begin = [_layers(importer, s, first, directions) for s in states]
        own = given[first : first + directions]
        x, *after = _layer(importer, cell, x, begin, own, lengths)
        lasts.append(after)
    ends = [list(of_state) for of_state in zip(*lasts, strict=True)]
    return [x, *(end[0] if len(end) == 1 else emit(op.concat(end, 0)) for end in ends)]


def _layer(
    importer: Importer,
    cell: str,
    x: relax.Expr,
    states: list[relax.Expr],
    given: Sequence[Sequence[relax.Expr]],
    lengths: relax.Expr | None,
) -> list[relax.Expr]:
    """All steps of one layer: outputs (steps, batch, directions * hidden) and the last states.

    Parameters
    ----------
    importer : Importer
        Binds expressions.
    cell : str
        The operator's name for it.
    x : relax.Expr
        (steps, batch, inputs).
    states : list of relax.Expr
        (directions, batch, hidden) each.
    given : sequence of sequence of relax.Expr
        For each direction: the weights of the input and of the state, and their biases.
    lengths : relax.Expr, optional
        Of the sequences, where some end early.
    """
    emit = importer.emit
    order, hidden = _ORDER.get(cell), shape_of(given[0][1])[1]

    def in_order(tensor: relax.Expr) -> relax.Expr:
        if order is None:
            return tensor
        rows = np.concatenate([np.arange(g * hidden, (g + 1) * hidden) for g in order])
        return emit(op.take(tensor, relax.const(rows, "int64"), 0))

    def joined(parts: list[relax.Expr], axis: int) -> relax.Expr:
        return parts[0] if len(parts) == 1 else emit(op.concat(parts, axis))

    own = joined([in_order(one[0]) for one in given], 0)
    taken = emit(op.matmul(x, emit(op.permute_dims(own, [1, 0]))))
    across = [emit(op.permute_dims(in_order(one[1]), [1, 0])) for one in given]
    operands = [taken, joined([emit(op.expand_dims(w, 0)) for w in across], 0), *states]
    resets_after = cell == "gru_reset_after"
    if len(given[0]) == 4:
        biases = [(in_order(one[2]), in_order(one[3])) for one in given]
        early = [_early(importer, after, hidden, resets_after) for _, after in biases]
        total = [emit(op.add(b[0], e)) for b, e in zip(biases, early, strict=True)]
        operands[0] = emit(op.add(taken, joined(total, 0)))
        if resets_after:
            late = [emit(op.strided_slice(b, [0], [2 * hidden], [3 * hidden])) for _, b in biases]
            operands.append(joined([emit(op.expand_dims(b, 0)) for b in late], 0))
    elif resets_after:
        dtype = dtype_of(x)
        operands.append(relax.const(np.zeros((len(given), hidden)).astype(dtype), dtype))
    if lengths is not None:
        operands.append(lengths)
    direction = "forward" if len(given) == 1 else "bidirectional"
    result = emit(recurrent(cell, direction, operands))
    whole, *last = (emit(relax.TupleGetItem(result, i)) for i in range(1 + len(states)))
    steps, batch, _ = shape_of(x)
    whole = emit(op.permute_dims(whole, [0, 2, 1, 3]))
    return [emit(op.reshape(whole, [steps, batch, len(given) * hidden])), *last]


def _early(importer: Importer, bias: relax.Expr, hidden: int, resets_after: bool) -> relax.Expr:
    """What of the state's bias can be added to the input's share: not what is reset with it."""
    if not resets_after:
        return bias
    dtype = dtype_of(bias)
    kept = importer.emit(op.strided_slice(bias, [0], [0], [2 * hidden]))
    return importer.emit(op.concat([kept, relax.const(np.zeros(hidden).astype(dtype), dtype)], 0))


def _layers(importer: Importer, state: relax.Expr, first: int, count: int) -> relax.Expr:
    """Some layers' part of a state."""
    if shape_of(state)[0] == count:
        return state
    return importer.emit(op.strided_slice(state, [0], [first], [first + count]))


RECURRENT: dict[str, Callable[[Any, fx.Node], Any]] = {
    **dict.fromkeys(_CELLS, _convert),
    f"{OF_LENGTHS}.default": _convert_with_lengths,
}
"""By the name that the translator has for an operator."""
