"""TensorRT on an NVIDIA GPU: whole regions as engines, built while compiling."""

from collage.backends.tensorrt.backend import TensorrtBackend

__all__ = ["TensorrtBackend"]
