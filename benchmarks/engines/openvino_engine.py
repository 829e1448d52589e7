"""OpenVINO's CPU plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.engines.base import Array, Engine, EngineMissingError, Job, Session


class OpenVinoEngine(Engine):
    """Tuned for latency, and held to float32: by default it may compute in bfloat16."""

    name = "openvino"
    settings = "latency hint, float32 inference precision (as the others compute), one stream"

    def versions(self) -> dict[str, str]:
        try:
            import openvino
        except ImportError as err:
            raise EngineMissingError("not installed: pip install openvino") from err
        return {"openvino": openvino.__version__}

    def load(self, job: Job, inputs: Mapping[str, Array]) -> Session:
        import openvino

        config = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": str(job.threads),
            "NUM_STREAMS": "1",
        }
        compiled = openvino.Core().compile_model(str(job.model), "CPU", config)
        return _Request(compiled, inputs)


class _Request(Session):
    def __init__(self, compiled: Any, inputs: Mapping[str, Array]) -> None:
        import openvino

        self._request = compiled.create_infer_request()
        self._count = len(compiled.outputs)
        self._inputs = inputs  # their memory is what the request reads
        for name, array in inputs.items():
            self._request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def call(self) -> None:
        self._request.infer()

    def outputs(self) -> list[Array]:
        return [np.array(self._request.get_output_tensor(i).data) for i in range(self._count)]
