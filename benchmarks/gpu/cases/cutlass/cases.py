"""Cases of the ``cutlass`` backend's matrix products: every pattern, dtype, kind of kernel.

Most share their shape, so that they share a handful of compiled kernels: what follows a product is
chosen at run time. The rest reach the other kinds, tiles, layouts and alignments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases._case import CudaCase
from collage.backends.cutlass.families.gemm.patterns import Form, forms
from collage.testing.graphs import Emit, constant, graph

RTOL = {"float16": 3e-3, "bfloat16": 1.6e-2, "float32": 2e-5}
"""The result is rounded once, to 11, 8 and 24 bits; float32 adds up in another order."""
TF32_RTOL = 2e-3
"""Operands rounded to 11 bits; the errors average out over the sum."""


def _activated(emit: Emit, y: relax.Expr, activation: str, dtype: str) -> relax.Expr:
    if activation == "sigmoid":
        return op.sigmoid(y)
    if activation == "hardswish":
        scaled = emit(op.multiply(y, relax.const(np.asarray(1 / 6, dtype))))
        gate = emit(op.clip(emit(op.add(scaled, relax.const(np.asarray(0.5, dtype)))), 0, 1))
        return op.multiply(y, gate)
    return getattr(op.nn, activation)(y)


def dense(form: Form, lhs: Sequence[int], rhs: Sequence[int], dtype: str) -> tvm.IRModule:
    """``residual(activation(lhs @ rhs + bias))``, stored operands of the given shapes.

    The right operand is a constant unless it has a batch or is transposed.
    """
    rng = np.random.default_rng([*lhs, *rhs])
    weights = len(rhs) == 2 and not form.transposed_b
    rows = lhs[-1] if form.transposed_a else lhs[-2]
    columns = rhs[-2] if form.transposed_b else rhs[-1]
    batch = np.broadcast_shapes(tuple(lhs[:-2]), tuple(rhs[:-2]))
    shapes = [lhs] if weights else [lhs, rhs]
    if form.residual:
        shapes = [*shapes, [*batch, rows, columns]]

    def body(emit: Emit, a: relax.Expr, *others: relax.Expr) -> relax.Expr:
        b = constant(*rhs, rng=rng, scale=rhs[-2] ** -0.5, dtype=dtype) if weights else others[0]
        a = emit(_swapped(a, len(lhs))) if form.transposed_a else a
        b = emit(_swapped(b, len(rhs))) if form.transposed_b else b
        steps: list[Callable[[relax.Expr], relax.Expr]] = []
        if form.bias:
            steps.append(lambda y: op.add(y, constant(columns, rng=rng, dtype=dtype)))
        if form.activation:
            steps.append(lambda y: _activated(emit, y, form.activation, dtype))
        if form.residual:
            joined = op.add if form.residual == "add" else op.multiply
            steps.append(lambda y: joined(y, others[-1]))
        y = op.matmul(a, b)
        for step in steps:
            y = step(emit(y))
        return y

    return graph(shapes, body, dtype)


def _swapped(x: relax.Expr, rank: int) -> relax.Expr:
    return op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


def _case(
    form: Form,
    lhs: Sequence[int],
    rhs: Sequence[int],
    dtype: str = "float16",
    *,
    note: str = "",
    rtol: float | None = None,
    **options: Any,
) -> CudaCase:
    shape = f"{'x'.join(map(str, lhs))}-{'x'.join(map(str, rhs))}"
    words = [form.name.removeprefix("cutlass."), dtype, shape, note]
    return CudaCase(
        "-".join(word for word in words if word),
        "cutlass",
        form.name,
        dense(form, lhs, rhs, dtype),
        # Configurations are tried in the heuristic's order: one kernel is compiled, not six.
        {"find_first_valid": True, **options},
        rtol or RTOL[dtype],
    )


def cases() -> list[CudaCase]:
    """All cases."""
    return [*_every_form(), *_other_kernels(), *_unaligned_results(), *_other_math()]


def _every_form() -> list[CudaCase]:
    """Hopper's kernels, each form once."""
    plain = [form for form in forms() if not (form.transposed_a or form.transposed_b)]
    return [
        *(_case(form, (2, 64, 128), (128, 192)) for form in plain),
        _case(Form(transposed_b=True), (6, 80, 64), (6, 80, 64)),
        _case(Form(transposed_a=True), (3, 64, 40), (3, 64, 48), "bfloat16", sm=80),
        _case(Form(True, True), (48, 40), (56, 48), sm=80),
    ]


def _other_kernels() -> list[CudaCase]:
    """Other tiles, alignments, batches and slices of K."""
    bias_gelu = Form(bias=True, activation="gelu")
    bias_relu_add = Form(bias=True, activation="relu", residual="add")
    return [
        _case(Form(bias=True), (4096, 256), (256, 4096), note="large"),
        _case(Form(), (12, 136, 64), (12, 64, 72), "bfloat16", note="batched"),
        _case(bias_relu_add, (2, 64, 128), (128, 192), note="sm80", sm=80),
        _case(bias_gelu, (3, 37, 77), (77, 51), note="odd"),
        _case(bias_relu_add, (5, 31, 90), (90, 34), "bfloat16", note="even"),
        _case(Form(), (7, 24, 40), (1, 40, 16), note="shared-right", sm=80),
        _case(Form(), (1, 24, 40), (7, 40, 16), note="shared-left", sm=80),
        _case(bias_gelu, (1, 3072), (3072, 768), note="split", split_k_slices=8),
        _case(bias_relu_add, (8, 2048), (2048, 264), "bfloat16", note="split", split_k_slices=5),
        _case(Form(residual="multiply"), (9, 1031), (1031, 67), note="split", split_k_slices=3),
    ]


def _unaligned_results() -> list[CudaCase]:
    """Operands that can be loaded in bulk, mostly weights by columns; results with odd rows."""
    bias_gelu = Form(bias=True, activation="gelu")
    bias_relu_add = Form(bias=True, activation="relu", residual="add")
    return [
        _case(Form(), (1, 64), (64, 97), note="columns"),
        _case(Form(), (16, 768), (768, 1003), note="columns"),
        _case(Form(), (130, 64), (64, 50257), note="columns"),
        _case(Form(), (1100, 64), (64, 9001), note="columns"),
        _case(bias_gelu, (2, 70, 128), (128, 321), note="columns"),
        _case(bias_relu_add, (130, 128), (128, 202), "bfloat16", note="columns"),
        _case(Form(transposed_b=True), (80, 64), (77, 64), note="variable"),
        _case(bias_gelu, (130, 128), (128, 203), note="columns-sm80", sm=80),
        _case(Form(bias=True), (2, 2048), (2048, 131), note="columns-split", split_k_slices=4),
        _case(Form(bias=True), (33, 48), (48, 27), "float32", note="columns"),
    ]


def _other_math() -> list[CudaCase]:
    """float32: three TF32 products, one, and none."""
    bias_silu = Form(bias=True, activation="silu")
    bias_add = Form(bias=True, residual="add")
    simt = {"use_3xtf32": False}
    return [
        _case(bias_silu, (2, 50, 96), (96, 136), "float32", note="3xtf32"),
        _case(bias_add, (33, 45), (45, 27), "float32", note="3xtf32-odd"),
        _case(
            bias_silu, (130, 96), (96, 136), "float32", note="tf32", rtol=TF32_RTOL, allow_tf32=True
        ),
        _case(Form(), (4, 60, 36), (4, 36, 20), "float32", note="simt", **simt),
        _case(bias_add, (33, 45), (45, 27), "float32", note="simt-odd", **simt),
        _case(
            bias_silu,
            (4, 1024),
            (1024, 100),
            "float32",
            note="simt-split",
            split_k_slices=4,
            **simt,
        ),
    ]
