"""Who a network is timed beside, each on its own inputs, and how far results are off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm

Arrays = list[np.ndarray]
Session = Callable[[], object]


def write_onnx(program: Any, file: Path) -> None:
    """An exported program as the file that peers read."""
    with torch.no_grad():
        torch.onnx.export(program, (), dynamo=True, verbose=False).save(file)


def onnxruntime_session(file: Path, inputs: tuple[torch.Tensor, ...], threads: int = 1) -> Session:
    """onnxruntime in float32, a call of whose takes the inputs as they lie."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Whoever waits for the next call by spinning takes a core from the others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    feed = {n: x.numpy() for n, x in zip(names, inputs, strict=True)}
    return lambda: session.run(None, feed)


def openvino_session(
    file: Path, inputs: tuple[torch.Tensor, ...], hint: str, threads: int = 1
) -> Session:
    """OpenVINO with the inputs bound, told to compute in ``hint`` (``f32``, ``bf16``)."""
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": hint,
    }
    request = openvino.Core().compile_model(str(file), "CPU", settings).create_infer_request()

    def call() -> list[np.ndarray]:
        request.infer()
        return [tensor.data for tensor in request.output_tensors]

    for i, x in enumerate(inputs):
        request.set_input_tensor(i, openvino.Tensor(x.numpy(), shared_memory=True))
    call()
    return call


def eager_session(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Session:
    """PyTorch as it comes."""

    def call() -> object:
        with torch.inference_mode():
            return module(*inputs)

    return call


def rms_error(found: Arrays, exact: Arrays) -> float:
    """The root mean square of the difference over the result's own, the worst of all results."""
    worst = 0.0
    for mine, true in zip(found, exact, strict=True):
        if np.issubdtype(true.dtype, np.floating) and true.size:
            scale = float(np.sqrt(np.mean(true**2))) or 1.0
            worst = max(worst, float(np.sqrt(np.mean((mine - true) ** 2))) / scale)
    return worst


def arrays(found: object) -> Arrays:
    """All tensors of a result, however it is nested, in order."""
    from torch.utils._pytree import tree_leaves

    if isinstance(found, tvm.runtime.Tensor):
        return [found.numpy()]
    if isinstance(found, list | tvm.ir.Array):
        return [array for one in found for array in arrays(one)]
    if isinstance(found, np.ndarray):
        return [found]
    return [x.numpy() for x in tree_leaves(found) if isinstance(x, torch.Tensor)]
