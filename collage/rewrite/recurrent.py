"""LSTM, GRU and RNN step by step, in ordinary products and activations.

For cells that are not as the standard ones (:mod:`collage.backends.relax.recurrent` has an operator
for those), for sequences of one step, and for devices on which a loop over steps is no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.relax.recurrent import DIRECTIONS, GATES
from collage.backends.relax.static_shape import static_shape, tensor_dtype
from collage.backends.relax.stepped import stepped

Function = Callable[[relax.Expr], relax.Expr]


@dataclass(frozen=True)
class Cell:
    """What a step computes.

    Attributes
    ----------
    emit : callable
        Binds an expression to a variable.
    kind : str
        One of :data:`~collage.backends.relax.recurrent.GATES`.
    direction : str
        One of :data:`~collage.backends.relax.recurrent.DIRECTIONS`.
    functions : sequence of sequence of callable
        For each direction: of the gates, of the new state, and an LSTM's of what leaves the cell.
    clip : float or None
        What goes into a function lies within.
    coupled : bool
        Whether an LSTM forgets as much as it takes in.
    peepholes : sequence of sequence of relax.Expr
        For each direction what an LSTM's gates see of the cell, in ONNX's order ``iof``, (hidden,).
    stepped : bool
        Whether a state is rounded to 256 steps over its own range before it is multiplied.
    """

    emit: Function
    kind: str
    direction: str
    functions: Sequence[Sequence[Function]]
    clip: float | None = None
    coupled: bool = False
    peepholes: Sequence[Sequence[relax.Expr]] = field(default=((), ()))
    stepped: bool = False


def standard_functions(emit: Function, kind: str) -> list[Function]:
    """The functions of an ordinary cell.

    Parameters
    ----------
    emit : callable
        Binds an expression to a variable.
    kind : str
        Of the cell.

    Returns
    -------
    list of Function
        One for each gate and state that the cell's kind applies one to; each emits what it
        computes.
    """

    def applied(function: Function) -> Function:
        return lambda x: emit(function(x))

    sigmoid, tanh, relu = map(applied, (op.sigmoid, op.tanh, op.nn.relu))
    if kind == "lstm":
        return [sigmoid, tanh, tanh]
    return {"rnn_tanh": [tanh], "rnn_relu": [relu]}.get(kind, [sigmoid, tanh])


def write_out(cell: Cell, operands: Mapping[str, relax.Expr]) -> relax.Tuple:
    """All steps of all directions.

    Parameters
    ----------
    cell : Cell
        What a step computes.
    operands : mapping of str to relax.Expr
        As :meth:`~collage.backends.relax.Recurrence.operands` names them.

    Returns
    -------
    relax.Tuple
        All hidden states (steps, directions, batch, hidden), and the last states (directions,
        batch, hidden).
    """
    outputs, lasts = [], []
    for direction in range(len(DIRECTIONS[cell.direction])):
        output, states = _Direction(cell, operands, direction).run()
        outputs.append(output)
        lasts.append(states)
    whole = [_joined(cell, outputs, 1)]
    whole += [_joined(cell, [last[i] for last in lasts], 0) for i in range(len(lasts[0]))]
    return relax.Tuple(whole)


def _joined(cell: Cell, parts: Sequence[relax.Expr], axis: int) -> relax.Expr:
    return parts[0] if len(parts) == 1 else cell.emit(op.concat(list(parts), axis))


class _Direction:
    """The steps of one direction."""

    def __init__(self, cell: Cell, operands: Mapping[str, relax.Expr], which: int) -> None:
        self._cell = cell
        self._operands = operands
        self._which = which
        self._emit = cell.emit
        self._backwards = DIRECTIONS[cell.direction][which]
        self._steps, self._batch, _ = static_shape(operands["taken"])
        self._hidden = static_shape(operands["weights"])[1]
        self._dtype = tensor_dtype(operands["taken"])
        self._gates = GATES[cell.kind]
        self._functions = cell.functions[which]
        self._weights = self._part("weights")
        self._bias = self._part("bias") if "bias" in operands else None
        self._holes = list(cell.peepholes[which])

    def run(self) -> tuple[relax.Expr, list[relax.Expr]]:
        """Outputs as (steps, 1, batch, hidden), and the last states as (1, batch, hidden)."""
        emit = self._emit
        states = [self._part(name) for name in ("h0", "c0") if name in self._operands]
        lengths = self._operands.get("lengths")
        if lengths is not None:
            lengths = emit(op.reshape(lengths, [self._batch, 1]))
        flat = emit(op.reshape(self._operands["taken"], [self._steps * self._batch, -1]))
        order = range(self._steps)
        outputs: dict[int, relax.Expr] = {}
        for step in reversed(order) if self._backwards else order:
            after = self._step(self._row(flat, step), states)
            output = after[0]
            if lengths is not None:
                live = emit(op.greater(lengths, relax.const(step, "int32")))
                output = emit(op.where(live, output, self._const(0.0)))
                after = [
                    emit(op.where(live, new, old)) for new, old in zip(after, states, strict=True)
                ]
            states = after
            outputs[step] = emit(op.reshape(output, [1, 1, self._batch, self._hidden]))
        lasts = [emit(op.reshape(state, [1, self._batch, self._hidden])) for state in states]
        return _joined(self._cell, [outputs[step] for step in order], 0), lasts

    def _row(self, flat: relax.Expr, step: int) -> relax.Expr:
        width = self._gates * self._hidden
        begin = [step * self._batch, self._which * width]
        end = [begin[0] + self._batch, begin[1] + width]
        return self._emit(op.strided_slice(flat, [0, 1], begin, end))

    def _part(self, name: str) -> relax.Expr:
        """What an operand holds for this direction."""
        whole = self._operands[name]
        extents = static_shape(whole)[1:]
        if isinstance(whole, tvm.ir.GenericConst):
            return _constant(whole.value.numpy()[self._which])
        if static_shape(whole)[0] > 1:
            which = self._which
            whole = self._emit(op.strided_slice(whole, [0], [which], [which + 1]))
        return self._emit(op.reshape(whole, list(extents)))

    def _columns(self, x: relax.Expr, begin: int, end: int) -> relax.Expr:
        """Of some gates."""
        low, high = begin * self._hidden, end * self._hidden
        if isinstance(x, tvm.ir.GenericConst):
            return _constant(x.value.numpy()[:, low:high])
        return self._emit(op.strided_slice(x, [1], [low], [high]))

    def _gate(self, x: relax.Expr, index: int) -> relax.Expr:
        return self._columns(x, index, index + 1)

    def _across(self, state: relax.Expr, weights: relax.Expr) -> relax.Expr:
        if self._cell.stepped:
            state = stepped(self._emit, state)
        return self._emit(op.matmul(state, weights))

    def _apply(self, which: int, x: relax.Expr) -> relax.Expr:
        limit = self._cell.clip
        if limit is not None:
            x = self._emit(op.clip(x, -limit, limit))
        return self._functions[which](x)

    def _sum(self, *terms: relax.Expr) -> relax.Expr:
        total = terms[0]
        for term in terms[1:]:
            total = self._emit(op.add(total, term))
        return total

    def _product(self, one: relax.Expr, two: relax.Expr) -> relax.Expr:
        return self._emit(op.multiply(one, two))

    def _const(self, value: float) -> relax.Expr:
        return relax.const(np.asarray(value).astype(self._dtype), self._dtype)

    def _step(self, x: relax.Expr, states: list[relax.Expr]) -> list[relax.Expr]:
        if self._gates == 1:
            return [self._apply(0, self._sum(x, self._across(states[0], self._weights)))]
        return self._lstm(x, states) if self._gates == 4 else self._gru(x, states[0])

    def _gru(self, x: relax.Expr, h: relax.Expr) -> list[relax.Expr]:
        after, weights = self._cell.kind == "gru_reset_after", self._weights
        across = self._across(h, weights if after else self._columns(weights, 0, 2))
        z, r = (
            self._apply(0, self._sum(self._gate(x, gate), self._gate(across, gate)))
            for gate in (0, 1)
        )
        if after:
            bias = [] if self._bias is None else [self._bias]
            kept = self._product(r, self._sum(self._gate(across, 2), *bias))
        else:
            kept = self._across(self._product(r, h), self._columns(weights, 2, 3))
        new = self._apply(1, self._sum(self._gate(x, 2), kept))
        # (1 - z) * new + z * h
        return [self._sum(new, self._product(z, self._emit(op.subtract(h, new))))]

    def _lstm(self, x: relax.Expr, states: list[relax.Expr]) -> list[relax.Expr]:
        h, c = states
        gates, holes = self._sum(x, self._across(h, self._weights)), self._holes

        def seeing(gate: int, hole: int, at: relax.Expr) -> relax.Expr:
            own = self._gate(gates, gate)
            return self._sum(own, self._product(holes[hole], at)) if holes else own

        i = self._apply(0, seeing(0, 0, c))
        if self._cell.coupled:
            f = self._emit(op.subtract(self._const(1.0), i))
        else:
            f = self._apply(0, seeing(2, 2, c))
        candidate = self._apply(1, self._gate(gates, 3))
        c = self._sum(self._product(f, c), self._product(i, candidate))
        o = self._apply(0, seeing(1, 1, c))
        return [self._product(o, self._functions[2](c)), c]


def _constant(value: np.ndarray) -> relax.Expr:
    return relax.const(np.ascontiguousarray(value), str(value.dtype))
