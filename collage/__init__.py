"""Collage: measured partition search over many backends, on TVM Relax.

>>> import collage
>>> result = collage.optimize("model.onnx", ["llvm", "onednn"], log="model.jsonl")
>>> folder = result.export("model.bundle")
>>> outputs = collage.load(folder)(image)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from collage._version import __version__

if TYPE_CHECKING:
    from collage import transform
    from collage.backends.contract.registry import register_backend
    from collage.bundle.bundle import load
    from collage.pipeline.optimize import optimize
    from collage.pipeline.result import Result

__all__ = ["Result", "__version__", "load", "optimize", "register_backend", "transform"]

_HOMES = {
    "Result": "collage.pipeline.result",
    "load": "collage.bundle.bundle",
    "optimize": "collage.pipeline.optimize",
    "register_backend": "collage.backends.contract.registry",
}


def __getattr__(name: str) -> Any:
    # On demand: the command line's help and every measuring worker import this package too, and
    # need neither importers nor TVM.
    if name == "transform":
        return importlib.import_module("collage.transform")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'collage' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
