"""Cases of the ``cutlass`` backend's norms: every pattern and dtype, long, short and odd rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases._case import CudaCase
from collage.testing.graphs import Emit, constant, graph

RTOL = {"float16": 3e-3, "bfloat16": 1.6e-2, "float32": 1e-5}
"""Only the result is rounded, to 11, 8 and 24 bits."""


def norm(
    kind: str, shape: Sequence[int], dtype: str, *, residual: bool = False, epsilon: float = 1e-5
) -> tvm.IRModule:
    """``layer_norm`` or ``rms_norm`` of an input, or of the sum of two."""
    rng = np.random.default_rng(len(shape) + shape[-1])

    def body(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
        if residual:
            x = emit(op.add(x, others[0]))
        scale = constant(shape[-1], rng=rng, dtype=dtype)
        if kind == "rms_norm":
            return op.nn.rms_norm(x, scale, axes=[-1], epsilon=epsilon)
        shift = constant(shape[-1], rng=rng, dtype=dtype)
        return op.nn.layer_norm(x, scale, shift, axes=[-1], epsilon=epsilon)

    return graph([shape] * (2 if residual else 1), body, dtype)


def _case(kind: str, shape: Sequence[int], dtype: str, residual: bool = False) -> CudaCase:
    pattern = f"add_{kind}" if residual else kind
    module = norm(kind, shape, dtype, residual=residual)
    name = f"{pattern}-{dtype}-{'x'.join(map(str, shape))}"
    return CudaCase(name, "cutlass", f"cutlass.{pattern}", module, {}, RTOL[dtype])


def cases() -> list[CudaCase]:
    """All cases."""
    return [
        _case("layer_norm", (2, 128, 768), "float16"),
        _case("layer_norm", (1, 37, 768), "float16", residual=True),
        _case("layer_norm", (4096, 768), "float16", residual=True),
        _case("layer_norm", (5, 77), "float32"),
        _case("layer_norm", (2, 3, 1030), "bfloat16"),
        _case("layer_norm", (3, 12288), "float32", residual=True),
        _case("rms_norm", (2, 16, 4096), "float16"),
        _case("rms_norm", (1, 5, 2048), "bfloat16", residual=True),
        _case("rms_norm", (7, 36), "float32", residual=True),
    ]
