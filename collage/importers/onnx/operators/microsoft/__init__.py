"""onnxruntime's operators, the domain ``com.microsoft``."""

from collage.importers.onnx.operators.microsoft import (
    attention,
    eight_bits,
    joined_norms,
    optimized,
    rotary,
)

__all__ = [
    "attention",
    "eight_bits",
    "joined_norms",
    "optimized",
    "rotary",
]
