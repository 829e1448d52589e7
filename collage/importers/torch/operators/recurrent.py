"""LSTM, GRU and RNN of exported programs, kept whole: taken apart they would be their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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

    Those of one step, or of which some outputs are dropped at random, are still taken apart.
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
        steps = x.shape[1 if batch_first else 0]
        if not (train and dropout) and steps > 1:
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
    directions = 2 if both else 1
    size = len(weights) // (layers * directions)
    given = [weights[i * size : (i + 1) * size] for i in range(layers * directions)]
    if batch_first:
        x = emit(op.permute_dims(x, [1, 0, 2]))
    narrow = node.args[1][0] if size == (5 if biases else 3) else None
    x, *ends = _all_layers(importer, cell, x, states, given, directions, narrow)
    if batch_first:
        x = emit(op.permute_dims(x, [1, 0, 2]))
    return (x, *ends)


def _convert_with_lengths(importer: Importer, node: fx.Node) -> tuple[relax.Expr, ...]:
    """Sequences that end early: the operator of ``packed``."""
    mode, x, lengths, states, weights, biases, layers, both = arguments(
        importer, node, "mode", "x", "lengths", "states", "weights", "biases", "layers", "both"
    )
    directions = 2 if both else 1
    size = len(weights) // (layers * directions)
    given = [weights[i : i + size] for i in range(0, len(weights), size)]
    ends = importer.emit(op.astype(lengths, "int32"))
    narrow = node.args[3][0] if size == (5 if biases else 3) else None
    return tuple(_all_layers(importer, _MODES[mode], x, states, given, directions, narrow, ends))


def _all_layers(
    importer: Importer,
    cell: str,
    x: relax.Expr,
    states: Sequence[relax.Expr],
    given: Sequence[Sequence[relax.Expr]],
    directions: int,
    narrow: fx.Node | None,
    lengths: relax.Expr | None = None,
) -> list[relax.Expr]:
    """Layer upon layer: the outputs of the last one, and the last states of all.

    ``narrow`` is the state that a projecting LSTM begins with.
    """
    emit = importer.emit
    lasts: list[list[relax.Expr]] = []
    for first in range(0, len(given), directions):
        begin = [_layers(importer, s, first, directions) for s in states]
        own = given[first : first + directions]
        if narrow is not None:
            x, *after = _projecting(importer, x, begin, own, lengths, _is_zero(narrow))
        else:
            x, *after = _layer(importer, cell, x, begin, own, lengths)
        lasts.append(after)
    ends = [list(of_state) for of_state in zip(*lasts, strict=True)]
    return [x, *(end[0] if len(end) == 1 else emit(op.concat(end, 0)) for end in ends)]


def _projecting(
    importer: Importer,
    x: relax.Expr,
    states: list[relax.Expr],
    given: Sequence[Sequence[relax.Expr]],
    lengths: relax.Expr | None,
    from_zero: bool,
) -> list[relax.Expr]:
    """An LSTM whose state is projected: as one whose state is not, with both matrices' product.

    What it begins with may be no projection of anything, and is added to the first step's share.
    """
    emit = importer.emit
    narrow, memory = states
    across = [emit(op.permute_dims(one[-1], [1, 0])) for one in given]
    plain = [[one[0], _product(importer, one[1], one[-1]), *one[2:-1]] for one in given]
    first: list[relax.Expr] = []
    for place, one in enumerate(() if from_zero else given):
        weights = emit(op.permute_dims(_in_order(importer, "lstm", one[1]), [1, 0]))
        first.append(emit(op.matmul(_layers(importer, narrow, place, 1), weights)))
    zeros = emit(op.zeros(shape_of(memory), dtype_of(memory)))
    whole, hidden, after = _layer(importer, "lstm", x, [zeros, memory], plain, lengths, first)
    wide = shape_of(memory)[2]
    outputs, ends = [], []
    for place, last in enumerate(across):
        own = whole
        if len(given) > 1:
            own = emit(op.strided_slice(whole, [2], [place * wide], [(place + 1) * wide]))
        outputs.append(emit(op.matmul(own, last)))
        ends.append(emit(op.matmul(_layers(importer, hidden, place, 1), last)))
    return [_joined(importer, outputs, 2), _joined(importer, ends, 0), after]


def _product(importer: Importer, one: relax.Expr, two: relax.Expr) -> relax.Expr:
    """Of weights, rounded once."""
    emit, dtype = importer.emit, dtype_of(one)
    if dtype == "float16" or dtype == "bfloat16":
        exact = [emit(op.astype(x, "float32")) for x in (one, two)]
        return emit(op.astype(emit(op.matmul(*exact)), dtype))
    return emit(op.matmul(one, two))


def _at_first_steps(
    importer: Importer,
    first: Sequence[relax.Expr],
    steps: int,
    lengths: relax.Expr | None,
) -> relax.Expr:
    """What is added to the step with which each direction begins, and zeros for all others."""
    emit = importer.emit
    numbers = np.arange(steps, dtype="int32").reshape(-1, 1, 1)
    parts = []
    for backwards, one in enumerate(first):
        begins: relax.Expr = relax.const((steps - 1) * backwards, "int32")
        if backwards and lengths is not None:
            last = emit(op.subtract(lengths, relax.const(1, "int32")))
            begins = emit(op.reshape(last, [1, -1, 1]))
        here = emit(op.equal(relax.const(numbers, "int32"), begins))
        parts.append(emit(op.where(here, one, relax.const(0, dtype_of(one)))))
    return _joined(importer, parts, 2)


def _joined(importer: Importer, parts: list[relax.Expr], axis: int) -> relax.Expr:
    return parts[0] if len(parts) == 1 else importer.emit(op.concat(parts, axis))


def _in_order(importer: Importer, cell: str, tensor: relax.Expr) -> relax.Expr:
    """Rows of a weight or a bias, gate by gate as the operator has them."""
    order = _ORDER.get(cell)
    if order is None:
        return tensor
    hidden = shape_of(tensor)[0] // len(order)
    rows = np.concatenate([np.arange(g * hidden, (g + 1) * hidden) for g in order])
    return importer.emit(op.take(tensor, relax.const(rows, "int64"), 0))


def _layer(
    importer: Importer,
    cell: str,
    x: relax.Expr,
    states: list[relax.Expr],
    given: Sequence[Sequence[relax.Expr]],
    lengths: relax.Expr | None,
    first: Sequence[relax.Expr] = (),
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
    first : sequence of relax.Expr
        What is added to the input's share of the first step, for each direction; or nothing.
    """
    emit, hidden = importer.emit, shape_of(given[0][1])[1]
    in_order, joined = partial(_in_order, importer, cell), partial(_joined, importer)
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
    if first:
        extra = _at_first_steps(importer, first, shape_of(x)[0], lengths)
        operands[0] = emit(op.add(operands[0], extra))
    if lengths is not None:
        operands.append(lengths)
    direction = "forward" if len(given) == 1 else "bidirectional"
    result = emit(recurrent(cell, direction, operands))
    whole, *last = (emit(relax.TupleGetItem(result, i)) for i in range(1 + len(states)))
    steps, batch, _ = shape_of(x)
    whole = emit(op.permute_dims(whole, [0, 2, 1, 3]))
    return [emit(op.reshape(whole, [steps, batch, len(given) * hidden])), *last]


def _is_zero(node: fx.Node) -> bool:
    """Whether a state is what a layer begins with that is given none."""
    name = getattr(node.target, "__name__", "")
    return name == "zeros.default" or (name == "full.default" and node.args[1] == 0)


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
