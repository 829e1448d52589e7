"""Recurrent networks of the sizes that speech and time series have, made without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto

from benchmarks.networks.tiny import GraphWriter

_GATES = {"LSTM": 4, "GRU": 3}
_CLASSES = 64


@dataclass(frozen=True)
class Stack:
    """Layers one on another, and a product behind them.

    Attributes
    ----------
    kind : str
        ``LSTM`` or ``GRU``; the GRU resets after its product, as PyTorch's does.
    steps, batch, width : int
        Of the input.
    hidden, layers : int
        Of the layers.
    both : bool
        Whether they run in both directions.
    """

    kind: str
    steps: int
    batch: int
    width: int
    hidden: int
    layers: int
    both: bool

    def model(self, name: str, seed: int = 0) -> ModelProto:
        """The network, float32: (steps, batch, width) to (steps, batch, 64).

        Parameters
        ----------
        name : str
            Its name.
        seed : int
            Of its weights.
        """
        g = GraphWriter(seed)
        x, width = "x", self.width
        for _ in range(self.layers):
            x = self._layer(g, x, width)
            width = self.hidden * (2 if self.both else 1)
        x = g.apply("MatMul", x, g.normal((width, _CLASSES), 1 / math.sqrt(width)))
        shape = (self.steps, self.batch, self.width)
        inputs = {"x": (int(TensorProto.FLOAT), shape)}
        return g.model(name, inputs, x, (self.steps, self.batch, _CLASSES))

    def _layer(self, g: GraphWriter, x: str, width: int) -> str:
        directions, rows = (2 if self.both else 1), _GATES[self.kind] * self.hidden
        deviation = 1 / math.sqrt(self.hidden)
        options = {"linear_before_reset": 1} if self.kind == "GRU" else {}
        result = g.apply(
            self.kind,
            x,
            g.normal((directions, rows, width), 1 / math.sqrt(width)),
            g.normal((directions, rows, self.hidden), deviation),
            g.normal((directions, 2 * rows), deviation),
            hidden_size=self.hidden,
            direction="bidirectional" if self.both else "forward",
            **options,
        )
        turned = g.apply("Transpose", result, perm=[0, 2, 1, 3])
        shape = g.constant(np.array([self.steps, self.batch, directions * self.hidden]))
        return g.apply("Reshape", turned, shape)


RECURRENT = {
    "gru_128": Stack("GRU", 300, 1, 80, 128, 1, both=False),
    "lstm_256_both": Stack("LSTM", 500, 1, 80, 256, 2, both=True),
    "lstm_512": Stack("LSTM", 100, 1, 80, 512, 2, both=False),
    "lstm_256_batch_8": Stack("LSTM", 100, 8, 80, 256, 2, both=False),
}
"""By name, as ``benchmarks.run --model`` takes it."""
