"""onnxruntime's CPU provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.engines.base import Array, Engine, Job, Session


class OnnxRuntimeEngine(Engine):
    """All graph optimizations, its own thread pool with spinning on (both are its defaults)."""

    name = "onnxruntime"
    settings = "ORT_ENABLE_ALL, CPU provider, spinning allowed, bound inputs and outputs"

    def versions(self) -> dict[str, str]:
        import onnxruntime

        return {"onnxruntime": onnxruntime.__version__}

    def load(self, job: Job, inputs: Mapping[str, Array]) -> Session:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = job.threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            str(job.model), options, providers=["CPUExecutionProvider"]
        )
        return _Bound(session, inputs)


class _Bound(Session):
    def __init__(self, session: Any, inputs: Mapping[str, Array]) -> None:
        self._session = session
        self._inputs = inputs  # their memory is what the binding reads
        self._binding = session.io_binding()
        for name, array in inputs.items():
            self._binding.bind_cpu_input(name, array)
        for output in session.get_outputs():
            self._binding.bind_output(output.name)

    def call(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[Array]:
        return list(self._binding.copy_outputs_to_cpu())
