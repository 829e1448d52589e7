"""onnxruntime's own operators, which its tools write into models, beside onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    model_of,
    require_same,
)

_DOMAIN = "com.microsoft"


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("scales", ["one", "each column"])
def test_quantized_lstm(scales: str, direction: str, kind: str) -> None:
    """A value may be rounded to either of two neighbouring steps, and the steps after see it."""
    rng = np.random.default_rng()
    steps, width, hidden = 5, 6, 4
    count = 2 if direction == "bidirectional" else 1
    limits = np.iinfo(kind)
    per = [count, 4 * hidden] if scales == "each column" else [count]
    x = rng.uniform(-1, 1, (steps, 1, width)).astype("float32")
    constants: dict[str, Array] = {
        name: rng.integers(limits.min, limits.max, (count, rows, 4 * hidden), kind, endpoint=True)
        for name, rows in (("W", width), ("R", hidden))
    }
    constants["B"] = rng.uniform(-0.5, 0.5, (count, 8 * hidden)).astype("float32")
    for name in ("W", "R"):
        constants[f"{name}_scale"] = rng.uniform(0.002, 0.006, per).astype("float32")
        constants[f"{name}_zero"] = np.full(per, 0 if kind == "int8" else 128, kind)
    names = ["x", "W", "R", "B", "", "", "", "", "W_scale", "W_zero", "R_scale", "R_zero"]
    node = helper.make_node(
        *("DynamicQuantizeLSTM", names, ["Y", "Y_h", "Y_c"]),
        domain=_DOMAIN,
        hidden_size=hidden,
        direction=direction,
    )
    model = model_of([node], {"x": x}, ["Y", "Y_h", "Y_c"], constants, beyond=_DOMAIN)
    require_same(by_importer(model, {"x": x}), by_onnxruntime(model, {"x": x}), 0.03)


def test_quantized_lstm_with_weights_that_are_computed() -> None:
    given = {"x": np.zeros((2, 1, 3), "float32"), "W": np.zeros((1, 3, 8), "int8")}
    constants = {
        "R": np.zeros((1, 2, 8), "int8"),
        "s": np.ones(1, "float32"),
        "z": np.zeros(1, "int8"),
    }
    names = ["x", "W", "R", "", "", "", "", "", "s", "z", "s", "z"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["Y"], domain=_DOMAIN, hidden_size=2)
    with pytest.raises(ModelError, match="weights is computed while the model runs"):
        load_model(model_of([node], given, ["Y"], constants, beyond=_DOMAIN))
