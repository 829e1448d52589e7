"""Attention in parts computes what the operator does."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import evaluate
from collage.normalize import normalize
from collage.passes.expand_attention import expand_attention


def _module(causal: str | None, *, bias: bool, scale: float | None, rows: int) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    q = relax.Var("q", relax.TensorType((2, rows, 3, 8), "float32"))
    k = relax.Var("k", relax.TensorType((2, 7, 3, 8), "float32"))
    v = relax.Var("v", relax.TensorType((2, 7, 3, 4), "float32"))
    b = relax.Var("b", relax.TensorType((2, 3, rows, 7), "float32"))
    params = [q, k, v, *([b] if bias else [])]
    with builder.function("main", params):
        with builder.dataflow():
            call = relax.op.nn.attention(q, k, v, b if bias else None, scale, causal)
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("causal", [None, "TopLeft", "BottomRight"])
@pytest.mark.parametrize(("bias", "scale", "rows"), [(False, None, 5), (True, 0.3, 7)])
def test_it_means_the_same(causal: str | None, bias: bool, scale: float | None, rows: int) -> None:
    mod = normalize(_module(causal, bias=bias, scale=scale, rows=rows))
    parts = normalize(expand_attention(mod))
    names = {
        str(binding.value.op.name)
        for block in parts["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.Op)
    }
    assert "relax.matmul" in names and not any("attention" in name for name in names)
    rng = np.random.default_rng()
    inputs = [rng.standard_normal(static_shape(p)).astype("float32") for p in mod["main"].params]
    np.testing.assert_allclose(
        evaluate(parts, inputs)[0], evaluate(mod, inputs)[0], rtol=1e-5, atol=1e-5
    )


def test_half_precision_stays_one_operator() -> None:
    builder = relax.BlockBuilder()
    q = relax.Var("q", relax.TensorType((1, 4, 2, 8), "float16"))
    with builder.function("main", [q]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.attention(q, q, q))
        builder.emit_func_output(out)
    mod = normalize(builder.get())
    assert "attention" in expand_attention(mod).script()
