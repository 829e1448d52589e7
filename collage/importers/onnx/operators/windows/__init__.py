"""Operators over windows: convolutions, pools, regions of pictures, resizes."""

from collage.importers.onnx.operators.windows import convolution, pooling, regions, resize

__all__ = [
    "convolution",
    "pooling",
    "regions",
    "resize",
]
