"""The contenders on a GPU, by name. Each runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.gpu.engines.base import Engine, Job, Missing, Session
from benchmarks.gpu.engines.collage_engine import CollageEngine
from benchmarks.gpu.engines.onnxruntime_engine import OnnxRuntimeEngine
from benchmarks.gpu.engines.openvino_engine import OpenVinoEngine
from benchmarks.gpu.engines.torch_engine import EagerEngine, EagerGraphEngine, TorchCompileEngine

__all__ = ["COLLAGE", "EAGER", "PEERS", "TORCH_COMPILE", "Engine", "Job", "Missing", "Session",
           "engine_of"]  # fmt: skip

EAGER = "eager"
TORCH_COMPILE = "torch.compile"
COLLAGE = "collage"

PEERS: dict[str, Callable[[], Engine]] = {
    EAGER: EagerEngine,
    "eager, CUDA graph": EagerGraphEngine,
    TORCH_COMPILE: TorchCompileEngine,
    "onnxruntime": OnnxRuntimeEngine,
    "openvino": OpenVinoEngine,
}
"""Everything but us."""


def engine_of(name: str) -> Engine:
    """A peer, or one of our own partitionings: ``collage``, ``greedy``, ``single:<backend>``."""
    return PEERS[name]() if name in PEERS else CollageEngine(name)
