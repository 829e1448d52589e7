"""PyTorch's compiler on the same graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from benchmarks.engines.base import Array, Engine, EngineMissingError, Job, Session


class TorchCompileEngine(Engine):
    """The model's nodes as torch operators, weights frozen, compiled with autotuning."""

    name = "torch.compile"
    settings = "inductor, mode max-autotune, freezing on (weights prepacked), inference mode"

    def versions(self) -> dict[str, str]:
        try:
            import torch
        except ImportError as err:
            raise EngineMissingError("not installed: pip install torch") from err
        return {"torch": str(torch.__version__)}

    def load(self, job: Job, inputs: Mapping[str, Array]) -> Session:
        import torch
        import torch._inductor.config

        from benchmarks.engines.torch_graph import OnnxModule

        torch.set_num_threads(job.threads)
        torch._inductor.config.freezing = True
        module = OnnxModule(onnx.load(job.model)).eval()
        return _Compiled(torch.compile(module, mode="max-autotune", fullgraph=True), inputs)


class _Compiled(Session):
    def __init__(self, compiled: Any, inputs: Mapping[str, Array]) -> None:
        import torch

        self._compiled = compiled
        self._inputs = [torch.from_numpy(np.ascontiguousarray(a)) for a in inputs.values()]
        self._outputs: tuple[Any, ...] = ()
        self._no_grad = torch.no_grad

    def call(self) -> None:
        with self._no_grad():
            self._outputs = self._compiled(*self._inputs)

    def outputs(self) -> list[Array]:
        return [output.numpy() for output in self._outputs]
