"""LSTM, GRU and RNN on a GPU, all steps in one kernel where it can be."""

from collage.backends.tvm.cuda.recurrent.legalize import legalize_recurrent

__all__ = ["legalize_recurrent"]
