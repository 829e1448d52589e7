"""LSTM, GRU and RNN as one operator, and the tensor program that computes it."""

from collage.backends.relax.recurrent.operator import (
    DIRECTIONS,
    GATES,
    NAME,
    Recurrence,
    recurrent,
    register_operator,
)

__all__ = ["DIRECTIONS", "GATES", "NAME", "Recurrence", "recurrent", "register_operator"]

# Here, as modules that have the operator can only be read where it is known.
register_operator()
