"""Small networks of every rank, as importers bring them: no convolution is left to TVM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BackendTarget
from collage.normalize import normalize
from collage.passes import to_channels_last
from collage.search.dataflow import DataflowGraph, bits
from collage.search.strategies.without_costs import single_backend
from collage.testing.graphs import Emit, constant, graph

SPACES = [(48,), (16, 12), (8, 8, 6)]


class Layers:
    """Layers of any rank, channels first."""

    def __init__(self, emit: Emit, rank: int, dtype: str) -> None:
        self.emit, self.rank, self.dtype = emit, rank, dtype

    def convolution(
        self, x: relax.Expr, filters: int, kernel: int, *, transposed: bool = False, **attrs: Any
    ) -> relax.Var:
        """A convolution and its batch norm, which has an offset."""
        channels, groups = int(x.ty.shape[1]), attrs.get("groups", 1)
        wide = (channels, filters // groups) if transposed else (filters, channels // groups)
        weights = constant(*wide, *[kernel] * self.rank, dtype=self.dtype)
        make = getattr(op.nn, f"conv{self.rank}d{'_transpose' * transposed}")
        result = self.emit(make(x, weights, **attrs))
        ones = relax.const(np.ones(filters, self.dtype))
        offsets = [constant(filters, dtype=self.dtype) for _ in range(2)]
        normed = self.emit(op.nn.batch_norm(result, ones, *offsets, ones, axis=1, training=False))
        return self.emit(relax.TupleGetItem(normed, 0))

    def pooled(self, x: relax.Expr) -> relax.Var:
        """The greatest values of blocks."""
        kind = f"max_pool{self.rank}d"
        return self.emit(getattr(op.nn, kind)(x, [2] * self.rank, strides=[2] * self.rank))


def network(space: tuple[int, ...], dtype: str) -> tvm.IRModule:
    """A stem, a residual block, a depthwise layer, and a way back up."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        make = Layers(emit, len(space), dtype)
        y = make.pooled(emit(op.nn.relu(make.convolution(x, 32, 3, padding=1))))
        inner = emit(op.nn.leakyrelu(make.convolution(y, 32, 3, padding=1, groups=4), 0.1))
        y = emit(op.nn.relu(emit(op.add(make.convolution(inner, 32, 3, padding=1), y))))
        y = emit(op.nn.silu(make.convolution(y, 32, 5, padding=2, groups=32)))
        up = make.convolution(y, 16, 4, transposed=True, strides=2, padding=1)
        y = emit(op.nn.relu(up))
        return op.tanh(make.convolution(y, 3, 3, padding=2, dilation=2))

    return graph([(2, 3, *space)], body, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("space", SPACES)
def test_cudnn_takes_every_convolution_with_what_follows(
    space: tuple[int, ...], dtype: str
) -> None:
    mod = to_channels_last(normalize(network(space, dtype)))
    dataflow = DataflowGraph.from_function(mod["main"], mod)
    device = cuda_target()
    native = BackendTarget.of("tvm", device)
    found = single_backend(dataflow, BackendTarget.of("cudnn", device), native)
    left = [c for c in found.candidates if c.backend == "tvm"]
    names = {dataflow.op_name(index) for c in left for index in bits(c.nodes)}
    # What comes in and goes out is channels first; pools in bfloat16 are wrong in cuDNN.
    pools = {f"nn.max_pool{len(space)}d"} if dtype == "bfloat16" else set()
    assert names <= {"permute_dims", "reshape"} | pools
    taken = sorted(part.name for c in found.candidates for part in c.composites)
    name = f"cudnn.conv{len(space)}d"
    assert [t for t in taken if "conv" in t] == sorted(
        [
            *(f"{name}_bias_{what}" for what in ("relu", "leakyrelu", "add_relu", "silu", "tanh")),
            f"{name}_transpose_bias_relu",
        ]
    )
