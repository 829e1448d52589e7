"""Operators of classical learning, the domain ``ai.onnx.ml``."""

from collage.importers.onnx.operators.ml import supports, tables, trees

__all__ = [
    "supports",
    "tables",
    "trees",
]
