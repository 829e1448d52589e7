"""Operators of onnxruntime's that are the standard's under another domain, and those refused."""

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


def _node(operator: str, given: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(operator, given, outputs, domain=_DOMAIN, **attributes)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("mode", [None, "bilinear", "nearest"])
def test_grids(mode: str | None, opset: int) -> None:
    named = {} if mode is None else {"mode": mode, "padding_mode": "border", "align_corners": 1}
    given = {"x": fresh(1, 2, 4, 5), "g": fresh(1, 3, 3, 2)}
    model = model_of(
        [_node("GridSample", ["x", "g"], ["y"], **named)], given, ["y"], opset=opset, beyond=_DOMAIN
    )
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pads(mode: str) -> None:
    given = {"x": fresh(3, 4)}
    constants = {"p": np.array([[1, 0, 0, 2]], "int64"), "v": np.array(2, "float32")}
    operands = ["x", "p", "v"] if mode == "constant" else ["x", "p"]
    model = model_of(
        [_node("Pad", operands, ["y"], mode=mode)], given, ["y"], constants, beyond=_DOMAIN
    )
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_places() -> None:
    given = {"x": fresh(3, 4), "i": np.array([[[2], [0]], [[1], [1]]], "int64")}
    model = model_of([_node("GatherND", ["x", "i"], ["y"])], given, ["y"], beyond=_DOMAIN)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_what_onnxruntime_has_for_other_devices_alone() -> None:
    given = {"x": fresh(2, 3, 5), "r": fresh(2, 3, 5), "b": fresh(5)}
    model = model_of([_node("BiasDropout", ["x", "b", "r"], ["y"])], given, ["y"], beyond=_DOMAIN)
    require_same(by_importer(model, given), [given["x"] + given["b"] + given["r"]])
    table, places = fresh(5, 4), np.array([[1, 4], [0, 2]], "int64")
    model = model_of(
        *([_node("TorchEmbedding", ["w", "i"], ["y"])], {"i": places}, ["y"], {"w": table}),
        beyond=_DOMAIN,
    )
    require_same(by_importer(model, {"i": places}), [table[places]])
    for broken in (0.0, np.inf, np.nan):
        x = fresh(4)
        x[2] = broken
        model = model_of([_node("IsAllFinite", ["x"], ["y"])], {"x": x}, ["y"], beyond=_DOMAIN)
        require_same(by_importer(model, {"x": x}), [np.isfinite(x).all()])


@pytest.mark.parametrize(
    ("operator", "remedy"),
    [
        ("PackedAttention", "without removing padding"),
        ("DecoderMaskedSelfAttention", "MultiHeadAttention or GroupQueryAttention"),
        ("SparseAttention", "GroupQueryAttention"),
        ("BeamSearch", "export the decoder alone"),
    ],
)
def test_refused_with_what_to_do(operator: str, remedy: str) -> None:
    given = {"x": fresh(2, 3, 5)}
    model = model_of([_node(operator, ["x"], ["y"])], given, ["y"], beyond=_DOMAIN)
    with pytest.raises(ModelError, match=rf"com\.microsoft\.{operator} \(y\): .*{remedy}"):
        load_model(model)
