"""OpenVINO's CPU plugin, where contests are run on a CPU."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.gpu import networks
from benchmarks.gpu.engines.base import Array, Engine, Job, Missing, Session
from benchmarks.gpu.engines.onnxruntime_engine import export_onnx

_OPSET = 20  # Its frontend has not all operators of later ones.


class OpenVinoEngine(Engine):
    """The model as ONNX, in the data type of the others: by default it may compute in bfloat16."""

    settings = "latency hint, float32 inference precision (as the others compute), one stream"

    def load(self, job: Job) -> Session:
        if job.device != "cpu":
            raise Missing("not available: its plugin is one for processors")
        try:
            import openvino
        except ImportError as err:
            raise Missing("not available: openvino is not installed") from err
        module, inputs = networks.load(job.model, job.weights, job.torch_dtype)
        path = job.work_dir / "openvino.onnx"
        export_onnx(module, inputs, path, _OPSET)
        config = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": str(len(os.sched_getaffinity(0))),
            "NUM_STREAMS": "1",
        }
        compiled = openvino.Core().compile_model(str(path), "CPU", config)
        return _Request(compiled, [np.ascontiguousarray(x.numpy()) for x in inputs])


class _Request(Session):
    asynchronous = False

    def __init__(self, compiled: Any, inputs: list[Array]) -> None:
        import openvino

        self._request = compiled.create_infer_request()
        self._count = len(compiled.outputs)
        self._inputs = inputs  # Their memory is what the request reads.
        for i, array in enumerate(inputs):
            tensor = openvino.Tensor(array, shared_memory=True)
            self._request.set_input_tensor(i, tensor)

    def call(self) -> None:
        self._request.infer()

    def outputs(self) -> list[Array]:
        tensors = (self._request.get_output_tensor(i) for i in range(self._count))
        return [np.array(tensor.data) for tensor in tensors]
