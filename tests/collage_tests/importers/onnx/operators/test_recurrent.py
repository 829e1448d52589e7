"""LSTM, GRU and RNN with every attribute, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    model_of,
    require_same,
)

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_STEPS, _BATCH, _WIDTH, _HIDDEN = 3, 2, 4, 5


def operands(kind: str, directions: int, *, full: bool) -> dict[str, Array]:
    """Fresh inputs under the standard's names."""
    rng = np.random.default_rng()
    rows = _GATES[kind] * _HIDDEN

    def small(*shape: int) -> Array:
        return rng.uniform(-0.7, 0.7, shape).astype("float32")

    given = {
        "X": small(_STEPS, _BATCH, _WIDTH),
        "W": small(directions, rows, _WIDTH),
        "R": small(directions, rows, _HIDDEN),
    }
    if full:
        given["B"] = small(directions, 2 * rows)
        given["sequence_lens"] = rng.integers(1, _STEPS + 1, _BATCH).astype("int32")
        given["initial_h"] = small(directions, _BATCH, _HIDDEN)
        if kind == "LSTM":
            given["initial_c"] = small(directions, _BATCH, _HIDDEN)
            given["P"] = small(directions, 3 * _HIDDEN)
    return given


def node_of(kind: str, given: dict[str, Array], **attributes: Any) -> Any:
    outputs = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    return helper.make_node(kind, list(given), outputs, hidden_size=_HIDDEN, **attributes), outputs


@pytest.mark.parametrize("weights", ["constant", "computed"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", list(_GATES))
@pytest.mark.parametrize("peepholes", [False, True])
def test_every_input(kind: str, direction: str, weights: str, peepholes: bool) -> None:
    given = operands(kind, 2 if direction == "bidirectional" else 1, full=True)
    if not peepholes:
        # Without them an LSTM is an ordinary one, and as a whole an operator.
        given.pop("P", None)
    node, outputs = node_of(kind, given, direction=direction)
    fed = {
        name: array
        for name, array in given.items()
        if weights == "computed" or name not in ("W", "R", "B", "P")
    }
    constants = {name: array for name, array in given.items() if name not in fed}
    model = model_of([node], fed, outputs, constants)
    require_same(by_importer(model, fed), by_onnxruntime(model, fed))


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"clip": 0.3}),
        ("LSTM", {"clip": 0.3}),
        ("LSTM", {"input_forget": 1}),
        ("RNN", {"activations": ["Relu"]}),
        ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.3]}),
        ("RNN", {"activations": ["Elu"], "activation_alpha": [0.7]}),
        ("RNN", {"activations": ["Affine"], "activation_alpha": [0.4], "activation_beta": [0.1]}),
        ("RNN", {"activations": ["Softplus"]}),
        ("RNN", {"activations": ["Softsign"]}),
        ("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.2]}),
        (
            "RNN",
            {"activations": ["ScaledTanh"], "activation_alpha": [0.8], "activation_beta": [0.6]},
        ),
        (
            "GRU",
            {
                "activations": ["HardSigmoid", "Tanh"],
                "activation_alpha": [0.3],
                "activation_beta": [0.4],
            },
        ),
        ("LSTM", {"activations": ["HardSigmoid", "Relu", "Softsign"]}),
    ],
)
def test_every_attribute(kind: str, attributes: dict[str, Any]) -> None:
    given = operands(kind, 1, full=False)
    node, outputs = node_of(kind, given, **attributes)
    model = model_of([node], given, outputs)
    require_same(by_importer(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize("kind", list(_GATES))
def test_batch_first(kind: str) -> None:
    """onnxruntime lacks this layout: the same numbers, in another order."""
    given = operands(kind, 2, full=True)
    node, outputs = node_of(kind, given, direction="bidirectional")
    whole, *last = by_onnxruntime(model_of([node], given, outputs), given)
    turned = {
        name: array.swapaxes(0, 1).copy() if name in ("X", "initial_h", "initial_c") else array
        for name, array in given.items()
    }
    node, outputs = node_of(kind, turned, direction="bidirectional", layout=1)
    wanted = [whole.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in last)]
    require_same(by_importer(model_of([node], turned, outputs), turned), wanted)


def test_outputs_that_are_left_out() -> None:
    given = operands("LSTM", 1, full=False)
    node = helper.make_node("LSTM", list(given), ["", "", "Y_c"], hidden_size=_HIDDEN)
    model = model_of([node], given, ["Y_c"])
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_unknown_activations_are_refused_by_name() -> None:
    given = operands("RNN", 1, full=False)
    node, outputs = node_of("RNN", given, activations=["Gauss"])
    with pytest.raises(ModelError, match="RNN: the activation 'Gauss'"):
        load_model(model_of([node], given, outputs))
