"""What each Relax operator becomes in an ONNX model; importing this registers all of it."""

from collage.backends.onnxruntime.converters import (
    elementwise,
    linear,
    movement,
    nn,
    recurrent,
    reductions,
)

__all__ = ["elementwise", "linear", "movement", "nn", "recurrent", "reductions"]
