"""Collage: measured partition search over many backends, on TVM Relax.

>>> import collage
>>> result = collage.optimize("model.onnx", ["llvm", "onednn"], log="model.jsonl")
>>> folder = result.export("model.bundle")
>>> outputs = collage.load(folder)(image)
"""

from collage import transform
from collage.api import optimize
from collage.backends.registry import register_backend
from collage.bundle import load
from collage.result import Result

__all__ = ["Result", "load", "optimize", "register_backend", "transform"]
__version__ = "0.1.0"
