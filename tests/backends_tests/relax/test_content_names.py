"""The same kernel is the same text, whatever module it is in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BuildContext
from collage.backends.relax.modules.content_names import name_by_content
from collage.backends.toolchain.kernels.source import Source
from collage.testing import graph
from tests.backends_tests.cuda_on_host import cuda_source
from tests.backends_tests.tvm.cuda.lowered import lower

pytestmark = pytest.mark.cuda

op = relax.op


def layer(emit: Callable[..., relax.Var], x: relax.Var, seed: int) -> relax.Var:
    array = np.random.default_rng(seed).standard_normal((64, 64), np.float32).astype("float16")
    made = emit(op.nn.softmax(emit(op.nn.relu(emit(op.matmul(x, relax.const(array)))))))
    return emit(op.sum(made, 1, keepdims=True))


def codes(mod: tvm.IRModule, context: BuildContext) -> dict[str, str]:
    source = Source.of(cuda_source(name_by_content(lower(mod, context)), cuda_target()))
    assert source is not None
    return {kernel.name: kernel.code for kernel in source.kernels}


def test_kernels_of_a_layer_are_known_again_inside_a_network(context: BuildContext) -> None:
    alone = codes(graph([(4, 64)], lambda emit, x: layer(emit, x, 0), "float16"), context)

    def network(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Var:
        first = layer(emit, emit(op.exp(x)), 1)
        return layer(emit, emit(op.multiply(x, first)), 2)

    inside = codes(graph([(4, 64)], network, "float16"), context)
    assert alone.items() <= inside.items()
    # Two layers, and two operators before them.
    assert len(inside) == len(alone) + 2


def test_other_kernels_have_other_names(context: BuildContext) -> None:
    first = codes(graph([(4, 64)], lambda emit, x: op.exp(x), "float16"), context)
    second = codes(graph([(4, 32)], lambda emit, x: op.exp(x), "float16"), context)
    assert not first.keys() & second.keys()
