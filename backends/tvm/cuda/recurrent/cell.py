"""What a cell of LSTM, GRU or RNN makes of its gates' sums, at one element of the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.recurrent.blocking import parts
from collage.backends.tvm.cuda.recurrent.states import Element

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def wide_dtype(recurrence: Recurrence) -> str:
    """The data type of sums and states."""
    return _WIDE.get(recurrence.dtype, recurrence.dtype)


class Cell:
    """Writes the cell's functions.

    Parameters
    ----------
    recurrence : Recurrence
        Of the layer.
    operands : mapping of str to Buffer
        By their names in the operator.
    out : Buffer
        The states of all steps.
    """

    def __init__(self, recurrence: Recurrence, operands: Any, out: Any) -> None:
        self._one, self._in, self._out = recurrence, operands, out
        self._wide_dtype = wide_dtype(recurrence)

    def taken(self, gate: int, at: Element) -> Any:
        """What the input gives a gate.

        Parameters
        ----------
        gate : int
            Which.
        at : Element
            Where.

        Returns
        -------
        PrimExpr
            In the data type of sums.
        """
        one = self._one
        offset = (at.direction * one.gates + gate) * one.hidden
        return self.wide(self._in["taken"][at.step, at.row, offset + at.column])

    def write(
        self, index: int, at: Element, taken: Sequence[Any], total: Callable[[int], Any]
    ) -> None:
        """One part of the gates.

        Parameters
        ----------
        index : int
            Which part: a GRU that resets before its product has two.
        at : Element
            Where.
        taken : sequence of PrimExpr
            What the input gives the part's gates.
        total : callable
            The product of the state that a gate of the part has, by its place there.
        """
        one = self._one
        part = parts(one)[index]
        values = self.local(len(part))
        for place, gate in enumerate(part):
            # A GRU that resets behind its product adds what the input gives after that.
            late = one.has_bias and gate == 2
            first = self.wide(self._in["bias"][at.direction, at.column]) if late else taken[place]
            values[place] = first + total(place)
        old = at.states.hidden(at)
        match one.cell:
            case "rnn_tanh":
                values[0] = tirx.tanh(values[0])
                self._keep(at, values[0])
            case "rnn_relu":
                values[0] = tirx.max(values[0], tirx.const(0.0, self._wide_dtype))
                self._keep(at, values[0])
            case "lstm":
                self._lstm(at, values)
            case "gru_reset_after":
                # Each function's value is stored before another is applied: TVM's time for nested
                # ones grows exponentially.
                values[0] = tirx.sigmoid(values[0])
                values[1] = tirx.sigmoid(values[1])
                values[2] = tirx.tanh(taken[2] + values[1] * values[2])
                self._keep(at, values[2] + values[0] * (old - values[2]))
            case "gru" if index == 0:
                at.states.keep_other(at, tirx.sigmoid(values[0]))
                values[1] = tirx.sigmoid(values[1])
                at.states.keep_reset(at, values[1] * old)
            case "gru":
                values[0] = tirx.tanh(values[0])
                self._keep(at, values[0] + at.states.other(at) * (old - values[0]))

    def local(self, length: int) -> Any:
        """Registers of a thread, of the data type of sums."""
        return T.buffer_proxy(T.decl_buffer([length], self._wide_dtype, scope="local"))

    def wide(self, value: Any) -> Any:
        """A value in the data type of sums."""
        same = self._wide_dtype == self._one.dtype
        return value if same else tirx.Cast(self._wide_dtype, value)

    def narrow(self, value: Any) -> Any:
        """A value in the results' data type."""
        same = self._wide_dtype == self._one.dtype
        return value if same else tirx.Cast(self._one.dtype, value)

    def _lstm(self, at: Element, values: Any) -> None:
        for place in range(3):
            values[place] = tirx.sigmoid(values[place])
        values[3] = tirx.tanh(values[3])
        other = at.states.other(at)
        new = values[2] * other + values[0] * values[3]
        if self._one.has_lengths:
            new = tirx.Select(self._is_live(at), new, other)
        values[3] = new
        at.states.keep_other(at, values[3])
        values[3] = tirx.tanh(values[3])
        self._keep(at, values[1] * values[3])

    def _keep(self, at: Element, new: Any) -> None:
        """Store what a step makes, but for sequences that have ended."""
        output = new
        if self._one.has_lengths:
            live = self._is_live(at)
            output = tirx.Select(live, new, tirx.const(0.0, self._wide_dtype))
            new = tirx.Select(live, new, at.states.hidden(at))
        self._out[at.step, at.direction, at.row, at.column] = self.narrow(output)
        at.states.keep_hidden(at, 1 - at.old, new)

    def _is_live(self, at: Element) -> Any:
        return self._in["lengths"][at.row] > tirx.Cast("int32", at.step)
