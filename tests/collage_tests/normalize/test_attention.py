"""Attention: masks that are known beforehand, and the reference against TVM's own lowering."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.cost.reference import evaluate, largest_error
from collage.normalize import normalize
from tests.collage_tests.normalize.oracle import check, module, operators, random_inputs, run

_SHAPE = (2, 7, 3, 8)


def _masked(mask: np.ndarray, dtype: str = "float32") -> tvm.IRModule:
    """Attention whose mask is a constant where (bool) or a constant bias."""

    def body(builder, q, k, v):  # type: ignore[no-untyped-def]
        if mask.dtype == bool:
            zero, never = relax.const(0.0, dtype), relax.const(-np.inf, dtype)
            bias = builder.emit(op.where(relax.const(mask), zero, never))
        else:
            bias = relax.const(mask.astype(dtype))
        return op.nn.attention(q, k, v, bias, scale=0.3)

    return module([_SHAPE] * 3, body, dtype)


def _causal_of(mod: tvm.IRModule) -> str | None:
    (binding,) = mod["main"].body.blocks[0].bindings[:1]
    return binding.value.attrs.causal_mask


@pytest.mark.parametrize("mask", [np.ones((2, 1, 7, 7), bool), np.zeros((1, 1, 7, 7), "float32")])
def test_a_mask_that_hides_nothing_goes(mask: np.ndarray) -> None:
    normal = check(_masked(mask), ["nn.attention"])
    assert _causal_of(normal) is None


@pytest.mark.parametrize("never", [-np.inf, -1e4, np.finfo("float32").min])
def test_a_triangular_mask_is_causal(never: float) -> None:
    bias = np.triu(np.full((7, 7), never), 1)[None, None]
    bias[np.isnan(bias)] = 0.0
    normal = check(
        _masked(np.where(np.tri(7, dtype=bool), 0.0, never)[None, None]), ["nn.attention"]
    )
    assert _causal_of(normal) == "TopLeft"


def test_any_other_mask_stays() -> None:
    for mask in (
        np.tri(7, k=-1, dtype=bool) | np.eye(1, 7, dtype=bool),
        np.tri(7, k=1, dtype=bool),
    ):
        check(_masked(mask[None, None]), ["nn.attention_bias"])
    mixed = np.stack([np.tri(7, dtype=bool), np.ones((7, 7), bool)])[:, None]
    check(_masked(mixed), ["nn.attention_bias"])


def test_bias_takes_the_type_of_the_query() -> None:
    def body(builder, q, k, v):  # type: ignore[no-untyped-def]
        bias = relax.const(np.random.default_rng(0).normal(size=(1, 1, 7, 7)).astype("float32"))
        return op.nn.attention(q, k, v, bias)

    normal = normalize(module([_SHAPE] * 3, body, "float16"))
    assert operators(normal) == ["nn.attention_bias"]
    call = normal["main"].body.blocks[0].bindings[0].value
    assert str(call.args[3].ty.dtype) == "float16"


@pytest.mark.parametrize("causal", [None, "TopLeft", "BottomRight"])
@pytest.mark.parametrize("biased", [False, True])
def test_reference_agrees_with_tvm(causal: str | None, biased: bool) -> None:
    def body(builder, q, k, v):  # type: ignore[no-untyped-def]
        rng = np.random.default_rng()
        bias = relax.const(rng.normal(size=(2, 3, 5, 9)).astype("float32")) if biased else None
        return op.nn.attention(q, k, v, bias, causal_mask=causal)

    mod = module([(2, 5, 3, 8), (2, 9, 3, 8), (2, 9, 3, 6)], body)
    inputs = random_inputs(mod)
    (expected,), (actual,) = run(mod, inputs), evaluate(mod, inputs)
    assert largest_error(actual, expected) < 1e-5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("first", [True, False])
def test_rows_that_see_nothing_are_told(dtype: str, first: bool) -> None:
    """Built by TVM, whose maximum of nothing but minus infinities is finite; -1e4 is a number."""

    def body(builder, x):  # type: ignore[no-untyped-def]
        most = builder.emit(op.max(x, axis=-1, keepdims=True))
        never = relax.const(-np.inf, dtype)
        return op.equal(never, most) if first else op.equal(most, never)

    x = np.where(np.random.default_rng().random((6, 5)) < 0.7, -np.inf, np.float32(1))
    x[0], x[1], x[2, 3], x[3, 0] = -np.inf, -1e4, np.nan, np.inf
    (found,) = run(normalize(module([x.shape], body, dtype)), [x.astype(np.dtype(dtype))])
    np.testing.assert_array_equal(found[:, 0], np.isneginf(x).all(-1))
