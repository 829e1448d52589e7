"""Mixtures of experts, crops, channels last, inverses: onnxruntime's own operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    by_onnxruntime,
    fresh,
    model_of,
    require_same,
)

_DOMAIN = "com.microsoft"
_EXPERTS, _ROWS, _WIDTH, _INNER = 5, 6, 8, 12


def _mixture(fused: int, gated: bool, **attributes: Any) -> tuple[Any, dict[str, Any]]:
    constants = {
        "w1": fresh(_EXPERTS, fused * _INNER, _WIDTH),
        "b1": fresh(_EXPERTS, fused * _INNER),
        "w2": fresh(_EXPERTS, _WIDTH, _INNER),
        "b2": fresh(_EXPERTS, _WIDTH),
    }
    if gated:
        constants |= {"w3": fresh(_EXPERTS, _INNER, _WIDTH), "b3": fresh(_EXPERTS, _INNER)}
    given = {"x": fresh(2, _ROWS // 2, _WIDTH), "logits": fresh(_ROWS, _EXPERTS)}
    node = helper.make_node("MoE", ["x", "logits", *constants], ["y"], domain=_DOMAIN, **attributes)
    return model_of([node], given, ["y"], constants, beyond=_DOMAIN), {**given, **constants}


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("normalized", [0, 1])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity", "swiglu"])
def test_a_mixture_of_experts(activation: str, normalized: int, k: int) -> None:
    more: dict[str, Any] = {}
    if activation == "swiglu":
        more = {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0}
        more |= {"swiglu_limit": 1.5} if normalized else {}
    model, values = _mixture(
        2 if activation == "swiglu" else 1,
        gated=False,
        k=k,
        activation_type=activation,
        normalize_routing_weights=normalized,
        **more,
    )
    given = {name: values[name] for name in ("x", "logits")}
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize(("activation", "fusion"), [("swiglu", 0), ("swiglu", 2), ("silu", 0)])
def test_experts_whose_gates_are_products_of_their_own(activation: str, fusion: int) -> None:
    """onnxruntime has them on GPUs only."""
    gated = fusion == 0
    model, values = _mixture(
        *(1 if gated else 2, gated), k=2, activation_type=activation, swiglu_fusion=fusion
    )
    x, logits = values["x"].reshape(_ROWS, _WIDTH).astype("float64"), values["logits"]
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    wanted = np.zeros((_ROWS, _WIDTH))
    for row in range(_ROWS):
        for expert in np.argsort(-logits[row])[:2]:
            gate = values["w1"][expert] @ x[row] + values["b1"][expert]
            if gated:
                line = values["w3"][expert] @ x[row] + values["b3"][expert]
            else:
                gate, line = np.split(gate, 2)
            inner = gate / (1 + np.exp(-gate)) * line
            found = values["w2"][expert] @ inner + values["b2"][expert]
            wanted[row] += shares[row, expert] * found
    given = {name: values[name] for name in ("x", "logits")}
    (found,) = by_importer(model, given)
    np.testing.assert_allclose(found, wanted.reshape(found.shape), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 5), (7, 1)])
def test_crops_of_pictures(mode: str, size: tuple[int, int]) -> None:
    random = np.random.default_rng()
    low, high = np.sort(random.uniform(-0.1, 1.1, (2, 6, 2)), 0)
    given = {
        "x": fresh(3, 2, 9, 6),
        "regions": np.concatenate([low, high], 1).astype("float32"),
        "pictures": random.integers(0, 3, 6).astype("int32"),
    }
    node = helper.make_node(
        *("CropAndResize", [*given, "size"], ["y"]),
        domain=_DOMAIN,
        mode=mode,
        extrapolation_value=7.5,
    )
    constants = {"size": np.asarray(size, "int32")}
    model = model_of([node], given, ["y"], constants, beyond=_DOMAIN)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize(("groups", "auto"), [(1, "NOTSET"), (2, "NOTSET"), (1, "SAME_UPPER")])
def test_a_convolution_with_channels_last(groups: int, auto: str) -> None:
    """onnxruntime has it in float16 on GPUs only: the standard's, on what is turned."""
    given = {"x": fresh(2, 9, 8, 4)}
    w, b = fresh(6, 3, 2, 4 // groups), fresh(6)
    attributes: dict[str, Any] = {"group": groups, "strides": [2, 1], "auto_pad": auto}
    if auto == "NOTSET":
        attributes |= {"pads": [1, 0, 2, 1], "dilations": [1, 2]}
    node = helper.make_node("NhwcConv", ["x", "w", "b"], ["y"], domain=_DOMAIN, **attributes)
    model = model_of([node], given, ["y"], {"w": w, "b": b}, beyond=_DOMAIN)
    usual = model_of(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)],
        {"x": np.moveaxis(given["x"], -1, 1).copy()},
        ["y"],
        {"w": np.moveaxis(w, -1, 1).copy(), "b": b},
    )
    (wanted,) = by_onnxruntime(usual, {"x": np.moveaxis(given["x"], -1, 1).copy()})
    require_same(by_importer(model, given), [np.moveaxis(wanted, 1, -1)])


@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 5), (2, 3, 1, 1), (1, 17, 17)])
def test_inverses(shape: tuple[int, ...]) -> None:
    x = fresh(*shape)
    x[..., 0, 0] = 0 if shape[-1] > 1 else 2
    node = helper.make_node("Inverse", ["x"], ["y"], domain=_DOMAIN)
    model = model_of([node], {"x": x}, ["y"], beyond=_DOMAIN)
    (found,) = by_importer(model, {"x": x})
    wanted = np.linalg.inv(x.astype("float64"))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("step", [None, 0.5, -1.5])
def test_numbers_in_a_row(step: float | None) -> None:
    constants = {"start": np.asarray(1, "float32"), "limit": np.asarray(6, "float32")}
    if step is not None:
        constants["step"] = np.asarray(step, "float32")
        constants["limit"] *= np.sign(step)
    nodes = [
        helper.make_node("Range", list(constants), ["row"], domain=_DOMAIN),
        helper.make_node("Add", ["x", "row"], ["y"]),
    ]
    x = fresh(4, 1)
    model = model_of(nodes, {"x": x}, ["y"], constants, beyond=_DOMAIN)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}))
