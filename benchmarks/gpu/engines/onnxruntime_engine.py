"""onnxruntime with its CUDA provider, where it has one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.gpu import networks
from benchmarks.gpu.engines.base import Array, Engine, Job, Missing, Session

_PROVIDER = "CUDAExecutionProvider"


class OnnxRuntimeEngine(Engine):
    """The model as ONNX, inputs and outputs bound on the device."""

    settings = "CUDA provider, inputs and outputs bound on the device, timed by the host's clock"

    def load(self, job: Job) -> Session:
        try:
            import onnxruntime
        except ImportError as err:
            raise Missing("not available: onnxruntime is not installed") from err
        provider = _PROVIDER if job.device == "cuda" else "CPUExecutionProvider"
        found = onnxruntime.get_available_providers()
        if provider not in found:
            raise Missing(f"not available: no {provider} here, only {', '.join(found)}")
        module, inputs = networks.load(job.model, job.weights, job.torch_dtype)
        path = job.work_dir / "model.onnx"
        torch.onnx.export(module, inputs, str(path), dynamo=True, verbose=False)
        options = onnxruntime.SessionOptions()
        session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
        used = session.get_providers()
        if provider not in used:
            raise Missing(f"not available: {provider} does not load, only {', '.join(used)}")
        return _Bound(session, [x.numpy() for x in inputs], job.device)


class _Bound(Session):
    asynchronous = False  # It runs on a stream of its own and waits for it.

    def __init__(self, session: Any, inputs: list[Array], device: str) -> None:
        import onnxruntime

        self._session = session
        self._binding = session.io_binding()
        self._inputs = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a), device, 0)
            for a in inputs
        ]
        for info, value in zip(session.get_inputs(), self._inputs, strict=True):
            self._binding.bind_ortvalue_input(info.name, value)
        for info in session.get_outputs():
            self._binding.bind_output(info.name, device, 0)

    def call(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[Array]:
        return [a.astype(np.float32) for a in self._binding.copy_outputs_to_cpu()]
