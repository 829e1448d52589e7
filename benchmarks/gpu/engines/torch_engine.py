"""PyTorch: operator by operator, its calls recorded in a CUDA graph, and its compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu import networks
from benchmarks.gpu.engines.base import Array, Engine, Job, Missing, Session
from benchmarks.timing.cuda_graphs import recorded

Call = Callable[[], Any]


def module_and_inputs(job: Job) -> tuple[nn.Module, list[Tensor]]:
    """On the device; convolution networks in the memory order that PyTorch recommends."""
    module, inputs = networks.load(job.model, job.weights, job.torch_dtype)
    module = module.to(job.device)
    placed = [x.to(job.device) for x in inputs]
    if networks.network(job.model).convolutional:
        # Not the whole module at once: that fails where one has weights of five axes, too.
        for weights in (*module.parameters(), *module.buffers()):
            weights.data = _channels_last(weights.data)
        placed = [_channels_last(x) for x in placed]
    return module, placed


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


class _Session(Session):
    def __init__(self, call: Call) -> None:
        self._call = call
        self._result: Any = None

    def call(self) -> None:
        self._result = self._call()

    def outputs(self) -> list[Array]:
        result = self._result
        leaves = [result] if isinstance(result, Tensor) else list(result)
        wide = torch.float64 if leaves[0].dtype == torch.float64 else torch.float32
        return [leaf.to(wide).cpu().numpy() for leaf in leaves]


def _inference(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Call:
    def call() -> Any:
        with torch.inference_mode():
            return function(*inputs)

    return call


class EagerEngine(Engine):
    """Eager PyTorch; also makes the reference."""

    settings = "eager PyTorch, float16, channels_last for convolution networks, inference mode"

    def load(self, job: Job) -> Session:
        module, inputs = module_and_inputs(job)
        return _Session(_inference(module, inputs))

    def reference(self, job: Job) -> tuple[list[Array], str]:
        """The outputs in float64 of what was rounded to the job's dtype, and in which dtype.

        In float32, TF32 off, where a module insists on that.
        """
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        try:
            return self._outputs_in(torch.float64, job), "float64"
        except RuntimeError as err:
            print(f"no float64: {err}", file=sys.stderr)
            return self._outputs_in(torch.float32, job), "float32"

    def _outputs_in(self, dtype: torch.dtype, job: Job) -> list[Array]:
        # Buffers that are not saved are rounded like the others first.
        module, inputs = networks.load(job.model, job.weights, job.torch_dtype)
        module = module.to(job.device, dtype)
        placed = [x.to(job.device, dtype if x.is_floating_point() else x.dtype) for x in inputs]
        session = _Session(_inference(module, placed))
        session.call()
        return session.outputs()


class EagerGraphEngine(Engine):
    """Eager PyTorch, recorded once in a CUDA graph and replayed."""

    settings = "the same, captured by hand in a `torch.cuda.CUDAGraph` and replayed"

    def load(self, job: Job) -> Session:
        if job.device != "cuda":
            raise Missing("not available: CUDA graphs need a CUDA device")
        module, inputs = module_and_inputs(job)
        return _Session(recorded(_inference(module, inputs)))


class TorchCompileEngine(Engine):
    """``torch.compile`` with autotuning and CUDA graphs."""

    settings = '`torch.compile(mode="max-autotune")`, which tries kernels and uses CUDA graphs'

    def load(self, job: Job) -> Session:
        _take_the_device_to_measure()
        module, inputs = module_and_inputs(job)
        compiled = torch.compile(module, mode="max-autotune", dynamic=False)
        session = _Session(_inference(compiled, inputs))
        for _ in range(3):  # compiles, warms up, records
            session.call()
        return session


def _take_the_device_to_measure() -> None:
    """Let the compiler's own measurements have the device to themselves, as ours do.

    Its tuner loads a kernel, and compiles some, in the first call of what it measures; that takes
    longer than the measurement and is done before.
    """
    from torch._inductor.runtime import benchmarking

    from collage.backends.devices import CUDA
    from collage.backends.storage.device_lock import exclusive

    benchmarker = benchmarking.benchmarker
    measure = benchmarker.benchmark_gpu

    def benchmark_exclusively(_callable: Call, *args: Any, **kwargs: Any) -> Any:
        _callable()
        torch.cuda.synchronize()
        with exclusive(CUDA):
            return measure(_callable, *args, **kwargs)

    benchmarker.benchmark_gpu = benchmark_exclusively
