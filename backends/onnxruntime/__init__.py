"""onnxruntime on a CPU: whole regions as ONNX models, run by its CPU provider."""

from collage.backends.onnxruntime.backend import OnnxruntimeBackend

__all__ = ["OnnxruntimeBackend"]
