"""TVM's own code generator as a backend: partitions become scheduled tensor programs."""

from collage.backends.tvm.backend import TVMBackend

__all__ = ["TVMBackend"]
