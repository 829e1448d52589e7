"""Networks with 8-bit weights, as onnxruntime's quantizer makes them from seeded ones."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from benchmarks.networks.models import random_inputs
from benchmarks.networks.tiny import GraphWriter, tiny_bert, tiny_mobilenet

_WIDTH = 512
_SAMPLES = 4


@dataclass(frozen=True)
class Quantized:
    """A network and how it is quantized.

    Attributes
    ----------
    network : callable
        Makes it, in float32.
    form : str
        ``dynamic``: inputs of products are rounded over their own range. ``static``: all values
        between operators are rounded to fixed steps, found with random inputs.
    unsigned : bool
        Whether weights are unsigned, with zero points.
    """

    network: Callable[[], ModelProto]
    form: str
    unsigned: bool = False

    def model(self, name: str) -> ModelProto:
        """The quantized network; its scales are one for each column or channel.

        Parameters
        ----------
        name : str
            Its name.
        """
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic
        from onnxruntime.quantization import quantize_static as quantize_to_fixed

        plain = self.network()
        kind = QuantType.QUInt8 if self.unsigned else QuantType.QInt8
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder) / "plain.onnx", Path(folder) / "quantized.onnx"
            onnx.save(plain, source)
            if self.form == "dynamic":
                quantize_dynamic(source, made, weight_type=kind, per_channel=True)
            else:
                quantize_to_fixed(
                    *(source, made, _Samples(plain)),
                    quant_format=QuantFormat.QDQ,
                    activation_type=QuantType.QUInt8,
                    weight_type=kind,
                    per_channel=True,
                )
            model = onnx.load(made)
        model.graph.name = name
        return model


class _Samples:
    """What onnxruntime's calibration reads, one set of inputs after the other."""

    def __init__(self, model: ModelProto) -> None:
        self._left = [random_inputs(model, seed) for seed in range(_SAMPLES)]

    def get_next(self) -> dict[str, object] | None:
        """The next inputs; None behind the last."""
        return dict(self._left.pop()) if self._left else None


def _perceptron(rows: int) -> ModelProto:
    """Three dense layers of 512 with biases and ReLU."""
    g, x = GraphWriter(0), "x"
    for _ in range(3):
        x = g.apply("MatMul", x, g.normal((_WIDTH, _WIDTH), 1 / math.sqrt(_WIDTH)))
        x = g.apply("Relu", g.apply("Add", x, g.normal((_WIDTH,), 0.1)))
    return g.model("layers", {"x": (int(TensorProto.FLOAT), (rows, _WIDTH))}, x, (rows, _WIDTH))


_encoder = partial(tiny_bert, tokens=64, width=256, heads=4, layers=3)

QUANTIZED = {
    "dense_dynamic_1": Quantized(partial(_perceptron, 1), "dynamic"),
    "dense_dynamic_16": Quantized(partial(_perceptron, 16), "dynamic"),
    "dense_dynamic_128": Quantized(partial(_perceptron, 128), "dynamic"),
    "dense_unsigned_16": Quantized(partial(_perceptron, 16), "dynamic", unsigned=True),
    "encoder_dynamic": Quantized(_encoder, "dynamic"),
    "dense_static_16": Quantized(partial(_perceptron, 16), "static"),
    "mobilenet_static": Quantized(partial(tiny_mobilenet, image=96), "static"),
}
"""By name, as ``benchmarks.run --model`` takes it."""
