"""LSTM, GRU and RNN as one operator, and the tensor program that computes it."""

from collage.backends.relax.recurrent.operator import (
    DIRECTIONS,
    GATES,
    NAME,
    Recurrence,
    recurrent,
)

__all__ = ["DIRECTIONS", "GATES", "NAME", "Recurrence", "recurrent"]
