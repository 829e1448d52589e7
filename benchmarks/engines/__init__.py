"""The engines that are timed side by side, one file each, by the name used on the command line."""

from __future__ import annotations

from benchmarks.engines.base import Engine, Job, Session
from benchmarks.engines.collage_engine import (
    CollageEngine,
    GreedyEngine,
    OneDnnEngine,
    OpenBlasEngine,
    TvmEngine,
)
from benchmarks.engines.onnxruntime_engine import OnnxRuntimeEngine
from benchmarks.engines.openvino_engine import OpenVinoEngine
from benchmarks.engines.torch_engine import TorchCompileEngine

__all__ = ["ENGINES", "REFERENCE", "CollageEngine", "Engine", "Job", "Session"]

ENGINES: dict[str, type[Engine]] = {
    engine.name: engine
    for engine in (
        CollageEngine,
        OneDnnEngine,
        OpenBlasEngine,
        GreedyEngine,
        TvmEngine,
        OnnxRuntimeEngine,
        OpenVinoEngine,
        TorchCompileEngine,
    )
}

REFERENCE = OnnxRuntimeEngine.name
"""The engine that outputs are compared with and that times are divided by."""
