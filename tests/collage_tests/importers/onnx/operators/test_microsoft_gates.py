"""onnxruntime's gates, norms with gates, and positions; beside itself, or its definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    fresh,
    model_of,
    require_same,
)

_DOMAIN = "com.microsoft"
Array = NDArray[Any]


def _model(
    operator: str, given: dict[str, Any], outputs: tuple[str, ...] = ("y",), **attributes: Any
) -> Any:
    node = helper.make_node(operator, list(given), outputs, domain=_DOMAIN, **attributes)
    return model_of([node], given, outputs, beyond=_DOMAIN)


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
@pytest.mark.parametrize("size", [8, 4])
def test_norms_with_gates(size: int, activation: str) -> None:
    given = {"x": fresh(2, 3, 8), "s": fresh(size), "g": fresh(2, 3, 8)}
    model = _model("GatedRMSNorm", given, activation=activation, epsilon=1e-3)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("scale", [None, (12,), (3, 4), (4,)])
@pytest.mark.parametrize("count", [None, 3])
def test_norms_of_branches(count: int | None, scale: tuple[int, ...] | None) -> None:
    given = {"x": fresh(2, 5, 12) if count else fresh(2, 5, 3, 4)}
    given |= {"s": fresh(*scale)} if scale else {}
    named = {"num_branches": count} if count else {}
    model = _model("BranchwiseRMSNorm", given, **named)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("given", [{}, {"s": np.array(1.5, "float32")}])
def test_scaled_silu(given: dict[str, Array]) -> None:
    given = {"x": fresh(2, 3, 8), **given}
    model = _model("ScaledSiLU", given, alpha=0.5)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_gated_sum() -> None:
    given = {"x": fresh(2, 3, 8), "y_": fresh(2, 3, 8), "g": fresh(2, 3, 1)}
    model = _model("GatedAdd", given)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_gates_of_linear_attention() -> None:
    given = {"a": fresh(2, 3, 4), "m": fresh(4), "d": fresh(4), "b": fresh(2, 3, 4)}
    for names, outputs in ((list(given), ("y", "z")), (list("amd"), ("y",))):
        those = {name: given[name] for name in names}
        model = _model("LinearAttentionGate", those, outputs)
        require_same(by_importer(model, those), by_onnxruntime(model, those))


@pytest.mark.parametrize("limit", [0.0, 0.5])
@pytest.mark.parametrize("joined", [False, True])
def test_gate_of_an_expert(joined: bool, limit: float) -> None:
    gate, up = fresh(2, 3, 4), fresh(2, 3, 4)
    given = {"g": np.concatenate([gate, up], -1)} if joined else {"g": gate, "u": up}
    model = _model("SwiGLU", given, limit=limit, activation_alpha=1.7, activation_beta=1.0)
    if limit:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    require_same(by_importer(model, given), [gate / (1 + np.exp(-1.7 * gate)) * (up + 1)])


@pytest.mark.parametrize(("axis", "bias"), [(3, (2, 1, 1, 5)), (3, (4, 5)), (2, (1, 3, 4, 5))])
def test_softmax_with_a_bias(axis: int, bias: tuple[int, ...]) -> None:
    given = {"x": fresh(2, 3, 4, 5), "b": fresh(*bias)}
    model = _model("BiasSoftmax", given, axis=axis, is_inner_broadcast=int(bias[0] == 2))
    total = np.exp(given["x"] + given["b"])
    shares = total / total.sum(tuple(range(axis, 4)), keepdims=True)
    require_same(by_importer(model, given), [shares])


def test_products_and_convolutions_with_activations() -> None:
    given = {"a": fresh(3, 4), "b": fresh(5, 4)}
    model = _model("FusedMatMulActivation", given, transB=1, alpha=0.5, activation="Relu")
    require_same(by_importer(model, given), [np.maximum(given["a"] @ given["b"].T / 2, 0)])
    given = {"x": fresh(1, 5, 6, 4), "w": fresh(3, 4, 3, 3), "b": fresh(3), "z": fresh(1, 5, 6, 3)}
    model = _model("NhwcFusedConv", given, activation="Relu", pads=[1, 1, 1, 1])
    first = {**given, "x": given["x"].transpose(0, 3, 1, 2), "z": given["z"].transpose(0, 3, 1, 2)}
    other = _model("FusedConv", first, activation="Relu", pads=[1, 1, 1, 1])
    wanted = by_onnxruntime(other, first)[0].transpose(0, 2, 3, 1)
    require_same(by_importer(model, given), [wanted])


@pytest.mark.parametrize("rows", [3, 9])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_no_repetition(length: int, rows: int) -> None:
    tokens = np.random.default_rng().integers(0, 3, (4, rows))
    given = {"t": tokens, "s": fresh(4, 5)}
    model = _model("NGramRepeatBlock", given, ngram_size=length)
    np.testing.assert_array_equal(by_importer(model, given)[0], by_onnxruntime(model, given)[0])


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("partial", [False, True])
def test_places_in_time_height_and_width(partial: bool, interleaved: int, layout: int) -> None:
    half, depth = 6, 16 if partial else 12
    given = {
        "x": fresh(2, 5, 2 * depth),
        "p": np.random.default_rng().integers(0, 20, (3, 2, 5)),
        "c": fresh(20, half),
        "s": fresh(20, half),
    }
    named = {"rotary_embedding_dim": 2 * half} if partial else {}
    model = _model(
        *("MRotaryEmbedding", given),
        num_heads=2,
        mrope_section=[2, 2, 2],
        interleaved=interleaved,
        mrope_layout=layout,
        **named,
    )
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("both", [False, True])
def test_bias_by_distance(both: bool) -> None:
    """As T5 has it, told bucket by bucket."""
    count, heads, rows, furthest = 8, 2, 24, 16
    table = fresh(count, heads)
    lengths = {name: np.array([rows], "int64") for name in ("q", "k")}
    node = helper.make_node(
        *("RelativePositionBias", ["t", "q", "k"], ["y"]),
        domain=_DOMAIN,
        max_distance=furthest,
        is_bidirectional=int(both),
    )
    # The table lies in memory head by head.
    given = {"t": np.ascontiguousarray(table.T).reshape(count, heads)}
    model = model_of([node], given, ["y"], lengths, beyond=_DOMAIN)
    wanted = np.zeros((1, heads, rows, rows), "float32")
    own = count // 2 if both else count
    for row in range(rows):
        for column in range(rows):
            apart = column - row
            first = own if both and apart > 0 else 0
            apart = abs(apart) if both else max(-apart, 0)
            if apart >= own // 2:
                share = np.log(apart / (own // 2)) / np.log(furthest / (own // 2))
                apart = min(own // 2 + int(share * (own - own // 2) + 1e-9), own - 1)
            wanted[0, :, row, column] = table[first + apart]
    require_same(by_importer(model, given), [wanted])


def test_gated_bias() -> None:
    """As WavLM has it."""
    batch, rows, heads, depth, wide = 2, 5, 3, 4, 6
    given = {
        "q": fresh(batch, rows, heads * depth),
        "qb": fresh(heads * depth),
        "r": fresh(1, heads, rows, rows),
        "w": fresh(depth, wide),
        "b": fresh(wide),
        "e": fresh(1, heads, 1, 1),
    }
    query = (given["q"] + given["qb"]).reshape(batch, rows, heads, depth).transpose(0, 2, 1, 3)
    gates = (query @ given["w"] + given["b"]).reshape(batch, heads, rows, 2, wide // 2).sum(-1)
    first, second = np.split(1 / (1 + np.exp(-gates)), 2, -1)
    wanted = (first * (second * given["e"] - 1) + 2) * given["r"]
    model = _model("GatedRelativePositionBias", given, num_heads=heads)
    require_same(by_importer(model, given), [wanted])
