"""A residual block for cuDNN, as partitions."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.compile import external_functions
from collage.backends.contract import BackendTarget
from collage.backends.cudnn.backend import CudnnBackend
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.partition import Partition, read_partition
from collage.passes import lower
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.without_costs import single_backend
from collage.testing.graphs import Emit, constant, graph

LAYOUTS = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}


def targets() -> tuple[BackendTarget, ...]:
    device = cuda_target()
    native_target = BackendTarget.of("tvm", device)
    return (native_target, BackendTarget("cudnn", device, CudnnOptions()))


def partitioned(module: tvm.IRModule) -> tvm.IRModule:
    dataflow = DataflowGraph.from_function(module["main"], module)
    tvm_target, cudnn = targets()
    return lower(module, dataflow, single_backend(dataflow, cudnn, tvm_target))


def residual_block(channels: int = 16) -> tvm.IRModule:
    """Two equal convolutions with bias and ReLU, a third with the first one's result added."""
    rng = np.random.default_rng(0)

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        def convolution(y: relax.Expr) -> relax.Expr:
            w = constant(channels, 3, 3, channels, rng=rng, scale=0.1, dtype="float16")
            y = emit(op.nn.conv2d(y, w, padding=1, **LAYOUTS))
            return emit(op.add(y, constant(1, 1, 1, channels, rng=rng, dtype="float16")))

        first = emit(op.nn.relu(convolution(x)))
        second = emit(op.nn.relu(convolution(first)))
        return op.nn.relu(emit(op.add(first, convolution(second))))

    return graph([(1, 8, 8, channels)], body, "float16")


def partitions_of(module: tvm.IRModule) -> list[Partition]:
    functions = external_functions(partitioned(module), CudnnBackend())
    return [read_partition(function, CudnnOptions(), 90) for function in functions]
