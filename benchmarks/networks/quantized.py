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
        between operators are rounded to fixed steps, found with random inputs. ``operators``: the
        same with operators of bytes in place of conversions to and from floats.
    unsigned : bool
        Whether weights are unsigned, with zero points.
    folded : bool
        Whether batch norms are folded into convolutions first, as onnxruntime recommends.
    """

    network: Callable[[], ModelProto]
    form: str
    unsigned: bool = False
    folded: bool = False

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
        if self.folded:
            plain = _without_norms(plain)
        kind = QuantType.QUInt8 if self.unsigned else QuantType.QInt8
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder) / "plain.onnx", Path(folder) / "quantized.onnx"
            onnx.save(plain, source)
            if self.form == "dynamic":
                quantize_dynamic(source, made, weight_type=kind, per_channel=True)
            else:
                quantize_to_fixed(
                    *(source, made, _Samples(plain)),
                    quant_format=QuantFormat.QDQ
                    if self.form == "static"
                    else QuantFormat.QOperator,
                    activation_type=QuantType.QUInt8,
                    weight_type=kind,
                    per_channel=True,
                )
            model = onnx.load(made)
        model.graph.name = name
        return model


def _without_norms(model: ModelProto) -> ModelProto:
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        providers = ["CPUExecutionProvider"]
        ort.InferenceSession(model.SerializeToString(), options, providers=providers)
        return onnx.load(options.optimized_model_filepath)


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


def _blocks(image: int, width: int, gated: bool = False) -> ModelProto:
    """Four residual blocks as in ResNet, or with depthwise convolutions and gated channels."""
    g = GraphWriter(1)

    def convolution(
        x: str, inner: int, outer: int, kernel: int, stride: int, groups: int = 1
    ) -> str:
        weight = g.normal(
            (outer, inner // groups, kernel, kernel),
            math.sqrt(2.0 / (inner // groups * kernel * kernel)),
        )
        pads, bias = [kernel // 2] * 4, g.normal((outer,), 0.1)
        return g.apply("Conv", x, weight, bias, strides=[stride] * 2, pads=pads, group=groups)

    def gate(x: str, channels: int) -> str:
        few = g.apply("Relu", convolution(g.apply("GlobalAveragePool", x), channels, 16, 1, 1))
        return g.apply("Mul", x, g.apply("Sigmoid", convolution(few, 16, channels, 1, 1)))

    x = g.apply("Relu", convolution("image", 3, width, 7, 2))
    x = g.apply("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inner = width
    for outer, stride in ((width, 1), (width, 1), (2 * width, 2), (2 * width, 1)):
        y = g.apply("Relu", convolution(x, inner, outer, 1 if gated else 3, 1))
        if gated:
            y = g.apply("Relu", convolution(y, outer, outer, 3, stride, groups=outer))
            y = convolution(gate(y, outer), outer, outer, 1, 1)
        else:
            y = convolution(y, outer, outer, 3, stride)
        if stride > 1 or inner != outer:
            x = convolution(x, inner, outer, 1, stride)
        x, inner = g.apply("Relu", g.apply("Add", x, y)), outer
    x = g.apply("Flatten", g.apply("GlobalAveragePool", x))
    x = g.apply("Gemm", x, g.normal((inner, 10), 1 / math.sqrt(inner)), g.normal((10,), 0.1))
    shape = (1, 3, image, image)
    return g.model("blocks", {"image": (int(TensorProto.FLOAT), shape)}, x, (1, 10))


_encoder = partial(tiny_bert, tokens=64, width=256, heads=4, layers=3)

QUANTIZED = {
    "dense_dynamic_1": Quantized(partial(_perceptron, 1), "dynamic"),
    "dense_dynamic_16": Quantized(partial(_perceptron, 16), "dynamic"),
    "dense_dynamic_128": Quantized(partial(_perceptron, 128), "dynamic"),
    "dense_unsigned_16": Quantized(partial(_perceptron, 16), "dynamic", unsigned=True),
    "encoder_dynamic": Quantized(_encoder, "dynamic"),
    "dense_static_16": Quantized(partial(_perceptron, 16), "static"),
    "mobilenet_static": Quantized(partial(tiny_mobilenet, image=96), "static"),
    "mobilenet_folded_static": Quantized(partial(tiny_mobilenet, image=96), "static", folded=True),
    "mobilenet_folded_operators": Quantized(
        partial(tiny_mobilenet, image=96), "operators", folded=True
    ),
    "residual_static": Quantized(partial(_blocks, 112, 64), "static", folded=True),
    "residual_operators": Quantized(partial(_blocks, 112, 64), "operators", folded=True),
    "gated_static": Quantized(partial(_blocks, 112, 64, gated=True), "static", folded=True),
    "gated_operators": Quantized(partial(_blocks, 112, 64, gated=True), "operators", folded=True),
    "encoder_static": Quantized(_encoder, "static"),
}
"""By name, as ``benchmarks.run --model`` takes it."""
