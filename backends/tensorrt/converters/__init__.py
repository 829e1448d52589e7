"""What each Relax operator becomes in a TensorRT network; importing this registers all of it."""

from collage.backends.tensorrt.converters import elementwise, linear, movement, nn, reductions

__all__ = ["elementwise", "linear", "movement", "nn", "reductions"]
