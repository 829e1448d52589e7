"""ONNX models as text."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.importers.onnx.text import text_format_of

FORMATS = {"textproto": ".textproto", "json": ".json", "onnxtxt": ".onnxtxt"}


def _net() -> onnx.ModelProto:
    net = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[2, 3] x) => (float[2, 4] y) { h = MatMul(x, w)  y = Relu(h) }"""
    )
    weights = np.random.default_rng(3).normal(size=(3, 4)).astype("float32")
    net.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return net


def _save(path: Path, text_format: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        onnx.save_model(_net(), str(path), format=text_format)


@pytest.mark.parametrize("text_format", FORMATS)
@pytest.mark.parametrize("suffix", ["its own", ".txt"])
def test_models_as_text_are_read(tmp_path: Path, text_format: str, suffix: str) -> None:
    path = tmp_path / f"net{FORMATS[text_format] if suffix == 'its own' else suffix}"
    _save(path, text_format)
    assert text_format_of(path) == text_format
    x = np.random.default_rng(4).normal(size=(2, 3)).astype("float32")
    want = onnx.reference.ReferenceEvaluator(_net()).run(None, {"x": x})
    np.testing.assert_allclose(evaluate(load_model(path).mod, [x])[0], want[0], rtol=1e-6)


@pytest.mark.parametrize("text_format", FORMATS)
def test_text_that_is_cut_off_is_refused(tmp_path: Path, text_format: str) -> None:
    path = tmp_path / "net.txt"
    _save(path, text_format)
    path.write_text(path.read_text()[:-20])
    message = rf"net\.txt' is ONNX as text \({text_format}\), and cannot be read: ."
    with pytest.raises(ModelError, match=message):
        load_model(path)


def test_text_of_something_else_is_none(tmp_path: Path) -> None:
    for number, text in enumerate(['{"a": 1}', "<html>", "graph of something", ""]):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        assert text_format_of(path) is None
        with pytest.raises(ModelError, match="is no model of a known format"):
            load_model(path)
