"""Recurrent layers of exported programs, beside PyTorch on fresh random inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from collage.rewrite import flat_bindings, op_name

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
nn = torch.nn

_LAYERS: dict[str, tuple[type, dict[str, Any]]] = {
    "lstm": (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "lstm without biases": (nn.LSTM, {"bias": False}),
    "gru": (nn.GRU, {"num_layers": 3}),
    "gru without biases": (nn.GRU, {"bias": False, "bidirectional": True}),
    "rnn": (nn.RNN, {"bidirectional": True, "batch_first": True}),
    "rnn of relus": (nn.RNN, {"nonlinearity": "relu", "num_layers": 2}),
    "lstm with projections": (nn.LSTM, {"num_layers": 2, "bidirectional": True, "proj_size": 4}),
    "lstm with projections and no biases": (
        *(nn.LSTM, {"bias": False, "proj_size": 3, "batch_first": True}),
    ),
    "lstm with dropout": (nn.LSTM, {"num_layers": 2, "dropout": 0.5}),
}


def compare(module: Any, *inputs: Any) -> set[str]:
    """Hold an import against the module; the names of the operators that were imported."""
    program = torch.export.export(module.eval(), inputs, strict=False)
    mod = normalize(load_model(program).mod)
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(*inputs))
    given = torch.utils._pytree.tree_leaves(inputs)
    found = evaluate(mod, [x.numpy() for x in given])
    for one, two in zip(found, wanted, strict=True):
        assert one.shape == tuple(two.shape)
        np.testing.assert_allclose(one, two.numpy(), rtol=1e-4, atol=1e-5)
    return {op_name(value) for _, value in flat_bindings(mod["main"])}


@pytest.mark.parametrize("name", _LAYERS)
def test_a_layer_is_one_operator(name: str) -> None:
    kind, options = _LAYERS[name]
    operators = compare(kind(6, 9, **options), torch.randn(4, 3, 6))
    assert "collage.recurrent" in operators
    assert not operators & {"sigmoid", "tanh"}


@pytest.mark.parametrize("narrow", [0, 4])
def test_states_that_are_given(narrow: int) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(6, 9, num_layers=2, bidirectional=True, proj_size=narrow)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            return self.lstm(x, (h, c))

    states = torch.randn(4, 3, narrow or 9), torch.randn(4, 3, 9)
    assert "collage.recurrent" in compare(Net(), torch.randn(5, 3, 6), *states)


@pytest.mark.parametrize("shape", [(5, 6), (1, 3, 6)])
def test_one_sequence_and_one_step(shape: tuple[int, ...]) -> None:
    compare(nn.GRU(6, 9), torch.randn(shape))


def test_cells_that_a_loop_calls() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(6, 9)

        def forward(self, x: Any) -> Any:
            h = torch.zeros(x.shape[1], 9)
            for step in range(x.shape[0]):
                h = self.cell(x[step], h)
            return h

    compare(Net(), torch.randn(4, 3, 6))
