"""Where the states of recurrent layers are between steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collage.backends.relax.recurrent import Recurrence


@dataclass(frozen=True)
class Element:
    """An element of the state, and the step that it is made in.

    Attributes
    ----------
    states : States
        Of the layer.
    direction, row, column : PrimExpr
        Which element.
    step : PrimExpr
        Of the sequence.
    old : PrimExpr
        0 or 1: which of the two hidden states the step reads.
    tile : PrimExpr
        Which of a thread's elements it is; a number where its states are in registers.
    """

    states: States
    direction: Any
    row: Any
    column: Any
    step: Any
    old: Any
    tile: Any


@dataclass(frozen=True)
class States:
    """What steps hand on: the hidden state twice, what a step reads and what it writes; an LSTM's
    other state; and of a GRU that resets first, a gate and what it has reset.

    Attributes
    ----------
    buffer : Buffer
        ``(hidden, hidden, other, reset; directions, batch, width)``, for all blocks; or ``(hidden,
        hidden, reset; rows, width)``, of one block's rows in its shared memory.
    first : PrimExpr or None
        The first row that lies in a block's own memory; None where all blocks have one.
    mine : Buffer or None
        ``(tiles * 2,)``: a thread's own elements of the hidden and the other state in registers,
        beside a block's own memory. TVM takes a shared memory that is read where it is written, of
        whatever elements, for a race.
    """

    buffer: Any
    first: Any = None
    mine: Any = None

    @staticmethod
    def count(recurrence: Recurrence) -> int:
        """How many lie in the memory of all blocks."""
        return {"lstm": 3, "gru": 4}.get(recurrence.cell, 2)

    @staticmethod
    def own_count(recurrence: Recurrence) -> int:
        """How many lie in a block's own memory."""
        return 3 if recurrence.cell == "gru" else 2

    def factor(self, reset: bool, old: Any, direction: Any, row: Any, column: Any) -> Any:
        """What a weight is multiplied by.

        Parameters
        ----------
        reset : bool
            Whether it is what has been reset, or the hidden state.
        old : PrimExpr
            0 or 1: which of the two hidden states the step reads.
        direction, row, column : PrimExpr
            Which element.

        Returns
        -------
        PrimExpr
            In the data type of sums.
        """
        which = self._reset if reset else old
        return self.buffer[self._place(which, direction, row, column)]

    def hidden(self, at: Element) -> Any:
        """The hidden state that a step reads."""
        if self.mine is not None:
            return self.mine[at.tile * 2]
        return self.buffer[at.old, at.direction, at.row, at.column]

    def other(self, at: Element) -> Any:
        """An LSTM's other state, or the gate that a GRU has ready."""
        if self.mine is not None:
            return self.mine[at.tile * 2 + 1]
        return self.buffer[2, at.direction, at.row, at.column]

    def keep_hidden(self, at: Element, which: Any, value: Any) -> None:
        """Store a hidden state.

        Parameters
        ----------
        at : Element
            Of the state.
        which : PrimExpr
            0 or 1: which of the two.
        value : PrimExpr
            What it is.
        """
        if self.mine is not None:
            self.mine[at.tile * 2] = value
            value = self.mine[at.tile * 2]
        self.buffer[self._place(which, at.direction, at.row, at.column)] = value

    def keep_other(self, at: Element, value: Any) -> None:
        """Store an LSTM's other state, or a GRU's gate.

        Parameters
        ----------
        at, value
            As :meth:`keep_hidden` takes them.
        """
        if self.mine is not None:
            self.mine[at.tile * 2 + 1] = value
        else:
            self.buffer[2, at.direction, at.row, at.column] = value

    def keep_reset(self, at: Element, value: Any) -> None:
        """Store what a GRU has reset.

        Parameters
        ----------
        at, value
            As :meth:`keep_hidden` takes them.
        """
        self.buffer[self._place(self._reset, at.direction, at.row, at.column)] = value

    @property
    def _reset(self) -> int:
        return 3 if self.first is None else 2

    def _place(self, which: Any, direction: Any, row: Any, column: Any) -> tuple[Any, ...]:
        if self.first is None:
            return which, direction, row, column
        return which, row - self.first, column
