"""onnxruntime with its CUDA provider, where it has one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu import networks
from benchmarks.gpu.engines.base import Array, Engine, Job, Missing, Session, Timer
from collage.backends.devices import CUDA
from collage.backends.storage import exclusive

_PROVIDER = "CUDAExecutionProvider"
_ATTENTION_OPSET = 23  # The first whose attention is one operator, with kernels for it.
_CONVOLUTION_OPSET = 20  # The provider has no pooling of opset 22: it would run on the processor.
_TUNED = {"cudnn_conv_algo_search": "EXHAUSTIVE"}
_CONVOLUTIONAL = (
    {**_TUNED, "prefer_nhwc": "1"},
    {**_TUNED, "prefer_nhwc": "1", "fuse_conv_bias": "1"},
    {**_TUNED},
)


class OnnxRuntimeEngine(Engine):
    """The model as ONNX; the fastest of the provider's settings that a user would try."""

    settings = (
        f"CUDA provider, opset {_ATTENTION_OPSET} ({_CONVOLUTION_OPSET} for convolution networks, "
        "as the provider lacks newer pooling), known masks taken out, inputs and outputs bound on "
        "the device, on the stream that is timed, in a CUDA graph where it can be captured; "
        "convolution networks with `cudnn_conv_algo_search=EXHAUSTIVE` and the fastest of "
        "`prefer_nhwc`, with `fuse_conv_bias`, or neither"
    )

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
        convolutional = networks.network(job.model).convolutional
        opset = _CONVOLUTION_OPSET if convolutional else _ATTENTION_OPSET
        export_onnx(module, inputs, path, opset)
        placed = [x.to(job.device).contiguous() for x in inputs]
        if job.device != "cuda":
            return _Bound(path, provider, {}, placed, job.device)
        return _fastest(path, placed, convolutional)


def _fastest(path: Path, inputs: list[torch.Tensor], convolutional: bool) -> Session:
    """The quickest session, its stream the current one; what fails is said on standard error."""
    best: _Bound | None = None
    best_sec = 0.0
    failures: list[Exception] = []
    for options in _CONVOLUTIONAL if convolutional else ({},):
        for graph in ({"enable_cuda_graph": "1"}, {}):
            asked = {**options, **graph}
            try:
                session = _Bound(path, _PROVIDER, asked, inputs, "cuda")
                session_sec = _seconds(session)
            except _errors() as err:
                failures.append(err)
                print(f"onnxruntime cannot run with {asked}: {err}", file=sys.stderr)
                continue
            print(f"onnxruntime with {asked}: {session_sec * 1e3:.4f} ms", file=sys.stderr)
            if best is None or session_sec < best_sec:
                best, best_sec = session, session_sec
            break  # A graph that runs is never slower than the same calls without it.
    if best is None:
        raise failures[-1]
    best.use_stream()
    return best


def _errors() -> tuple[type[Exception], ...]:
    """What the library raises; its kinds have no base of their own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (
        RuntimeError,
        state.EPFail,
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.NotImplemented,
        state.RuntimeException,
    )


def _seconds(session: _Bound) -> float:
    """Per call. The provider measures its algorithms in the first calls, and records the third."""
    session.use_stream()
    with exclusive(CUDA):
        for _ in range(4):
            session.call()
        return Timer(session, "cuda").turn(0.05, 3)["event_sec"]


class _Bound(Session):
    """Inputs and outputs in tensors that stay where they are, as a CUDA graph needs them."""

    def __init__(
        self,
        path: Path,
        provider: str,
        options: dict[str, str],
        inputs: list[torch.Tensor],
        device: str,
    ) -> None:
        import onnxruntime

        self._options = options
        self._stream = torch.cuda.Stream() if device == "cuda" else None
        if self._stream is not None:
            options = {**options, "user_compute_stream": str(self._stream.cuda_stream)}
            torch.cuda.synchronize()  # The inputs were written on another stream.
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        if device == "cpu":
            settings.intra_op_num_threads = len(os.sched_getaffinity(0))
        session = onnxruntime.InferenceSession(
            str(path), settings, [(provider, options)], enable_fallback=0
        )
        used = session.get_providers()
        if provider not in used:
            raise Missing(f"not available: {provider} does not load, only {', '.join(used)}")
        self._session = session
        self._inputs = inputs
        self._binding = session.io_binding()
        for info, tensor in zip(session.get_inputs(), inputs, strict=True):
            self._binding.bind_input(
                info.name, device, 0, _numpy_type(tensor), tuple(tensor.shape), tensor.data_ptr()
            )
        self._outputs: list[torch.Tensor] = []
        for info in session.get_outputs():
            dtype = {"float": torch.float32, "float16": torch.float16}[info.type[7:-1]]
            tensor = torch.empty(info.shape, dtype=dtype, device=device)
            self._outputs.append(tensor)
            self._binding.bind_output(
                info.name, device, 0, _numpy_type(tensor), tuple(tensor.shape), tensor.data_ptr()
            )
        self._run = onnxruntime.RunOptions()
        if device == "cuda":
            # Calls enqueue, as those of the other engines do.
            self._run.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def use_stream(self) -> None:
        """Make the session's stream PyTorch's current one, which events are recorded on."""
        if self._stream is not None:
            torch.cuda.set_stream(self._stream)

    def call(self) -> None:
        self._session.run_with_iobinding(self._binding, self._run)

    def outputs(self) -> list[Array]:
        return [tensor.float().cpu().numpy() for tensor in self._outputs]

    def figures(self) -> dict[str, Any]:
        return {"settings": self._options}


def _numpy_type(tensor: torch.Tensor) -> Any:
    return np.dtype(str(tensor.dtype).removeprefix("torch.")).type


def export_onnx(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: Path, opset: int
) -> None:
    """Write the model; masks that are known become none or ``is_causal``, which kernels want."""
    import onnx

    torch.onnx.export(module, inputs, str(path), dynamo=True, verbose=False, opset_version=opset)
    model = onnx.load(str(path))
    known = _Constants(model.graph)
    for node in model.graph.node:
        if node.op_type != "Attention" or len(node.input) < 4 or not node.input[3]:
            continue
        mask = known.value(node.input[3])
        if mask is None or mask.dtype != np.bool_ or len(node.input) > 4:
            continue
        causal = mask.shape[-1] == mask.shape[-2] and np.array_equal(
            mask, np.broadcast_to(np.tri(mask.shape[-1], dtype=bool), mask.shape)
        )
        if mask.all() or causal:
            del node.input[3]
        if causal and not mask.all():
            kept = [a for a in node.attribute if a.name != "is_causal"]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("is_causal", 1)])
    onnx.save(model, str(path))


class _Constants:
    """Values that a graph computes of its initializers alone."""

    def __init__(self, graph: Any) -> None:
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._producers = {name: node for node in graph.node for name in node.output}

    def value(self, name: str) -> Array | None:
        from onnx import numpy_helper
        from onnx.reference import ReferenceEvaluator

        if name in self._initializers:
            value: Array = numpy_helper.to_array(self._initializers[name])
            return value
        node = self._producers.get(name)
        if node is None:
            return None
        feeds = {used: self.value(used) for used in node.input if used}
        if any(value is None for value in feeds.values()):
            return None
        results = ReferenceEvaluator(node).run(None, feeds)
        return np.asarray(results[list(node.output).index(name)])
