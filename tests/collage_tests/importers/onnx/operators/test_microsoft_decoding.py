"""onnxruntime's operators that go on from what earlier calls have left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    fresh,
    model_of,
    require_same,
)

_DOMAIN = "com.microsoft"


def _model(
    operator: str, given: dict[str, Any], names: list[str], outputs: list[str], **attributes: Any
) -> Any:
    """Of one node; names that are not given are inputs that are left out."""
    inputs = [name if name in given else "" for name in names]
    while not inputs[-1]:
        inputs.pop()
    node = helper.make_node(operator, inputs, outputs, domain=_DOMAIN, **attributes)
    return model_of([node], given, outputs, beyond=_DOMAIN)


_ONE_ROW = ["q", "k", "v", "m", "ab", "pk", "pv", "n", "beams", "table", "b"]


def _row(**more: Any) -> dict[str, Any]:
    return {**{name: fresh(2, 1, 8) for name in "qkv"}, **more}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("place", [0, 3, 5])
def test_one_row_written_into_a_buffer(place: int, bias: bool) -> None:
    given = _row(pk=fresh(2, 2, 6, 4), pv=fresh(2, 2, 6, 4), n=np.array([place], "int32"))
    given |= {"b": fresh(24)} if bias else {}
    model = _model(
        *("DecoderMaskedMultiHeadAttention", given, _ONE_ROW, ["y", "keys", "values"]),
        num_heads=2,
        past_present_share_buffer=1,
    )
    ours, wanted = by_importer(model, given), by_onnxruntime(model, given)
    # What lies behind in the buffer is nobody's.
    cut = [slice(None), slice(None), slice(place + 1)]
    require_same([ours[0], *(x[tuple(cut)] for x in ours[1:])], [
        wanted[0], *(x[tuple(cut)] for x in wanted[1:])
    ])  # fmt: skip


@pytest.mark.parametrize("masked", [False, True])
def test_one_row_beside_an_encoder(masked: bool) -> None:
    given = {"q": fresh(2, 1, 8), "k": fresh(2, 2, 5, 4), "v": fresh(2, 2, 5, 4)}
    given |= {"m": np.array([[1, 1, 0, 1, 1], [1, 0, 0, 0, 1]], "int32")} if masked else {}
    model = _model("DecoderMaskedMultiHeadAttention", given, _ONE_ROW, ["y"], num_heads=2)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_one_row_behind_a_cache_is_attention_of_several_heads() -> None:
    given = _row(pk=fresh(2, 2, 6, 4), pv=fresh(2, 2, 6, 4), ab=fresh(1, 2, 1, 7))
    outputs = ["y", "keys", "values"]
    model = _model("DecoderMaskedMultiHeadAttention", given, _ONE_ROW, outputs, num_heads=2)
    names = ["q", "k", "v", "b", "m", "ab", "pk", "pv"]
    other = _model("MultiHeadAttention", given, names, outputs, num_heads=2)
    require_same(by_importer(model, given), by_onnxruntime(other, given))


def test_beams_are_refused() -> None:
    given = _row(pk=fresh(2, 2, 6, 4), pv=fresh(2, 2, 6, 4), n=np.array([3], "int32"))
    given |= {"beams": np.array([2], "int32"), "table": np.zeros((1, 2, 6), "int32")}
    model = _model(
        *("DecoderMaskedMultiHeadAttention", given, _ONE_ROW, ["y"]),
        num_heads=2,
        past_present_share_buffer=1,
    )
    with pytest.raises(ModelError, match="beams, which share a cache"):
        load_model(model)


_WITHOUT_SOFTMAX = ["q", "k", "v", "s", "g", "b"]


@pytest.mark.parametrize("by_element", [False, True])
@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_attention_without_a_softmax(rule: str, heads: int, by_element: bool) -> None:
    given = {"q": fresh(2, 3, heads * 4), "k": fresh(2, 3, 8), "v": fresh(2, 3, 12)}
    if by_element:
        given["s"] = fresh(2, 2, 4, 6)
    if "gated" in rule:
        given["g"] = -np.abs(fresh(2, 3, 8 if by_element else 2))
    if "delta" in rule:
        given["b"] = np.abs(fresh(2, 3, 2 if by_element else 1))
    model = _model(
        *("LinearAttention", given, _WITHOUT_SOFTMAX, ["y", "state"]),
        q_num_heads=heads,
        kv_num_heads=2,
        update_rule=rule,
    )
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("known", [False, True])
def test_convolutions_from_before(known: bool, activation: str) -> None:
    given = {"x": fresh(2, 4, 6), "w": fresh(4, 1, 3)}
    given |= {"b": fresh(4), "s": fresh(2, 4, 2)} if known else {}
    names = ["x", "w", "b", "s"]
    model = _model("CausalConvWithState", given, names, ["y", "state"], activation=activation)
    require_same(by_importer(model, given), by_onnxruntime(model, given))
