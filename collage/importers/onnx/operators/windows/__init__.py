"""Operators over windows: convolutions, pools, resizes."""

from collage.importers.onnx.operators.windows import convolution, pooling, resize

__all__ = [
    "convolution",
    "pooling",
    "resize",
]
