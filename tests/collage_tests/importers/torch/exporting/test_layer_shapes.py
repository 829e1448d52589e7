"""Recurrent layers are traced and imported without going through their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

LAYERS = {
    "lstm": lambda **how: torch.nn.LSTM(4, 6, **how),
    "projected": lambda **how: torch.nn.LSTM(4, 6, proj_size=3, **how),
    "gru": lambda **how: torch.nn.GRU(4, 6, **how),
    "tanh": lambda **how: torch.nn.RNN(4, 6, **how),
    "relu": lambda **how: torch.nn.RNN(4, 6, nonlinearity="relu", **how),
}


def shapes(found: Any) -> list[Any]:
    leaves = torch.utils._pytree.tree_leaves(found)
    return [(tuple(leaf.shape), leaf.dtype) for leaf in leaves]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_shapes_are_those_that_pytorch_computes(name: str, both: bool, first: bool) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from collage.importers.torch.exporting.layer_shapes import shapes_of_layers

    layer = LAYERS[name](num_layers=2, bidirectional=both, batch_first=first)
    x = torch.randn(5, 2, 4)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, shapes_of_layers():
        found = shapes(layer(mode.from_tensor(x)))
    assert found == shapes(layer(x))


@pytest.mark.parametrize("name", ["lstm", "projected", "gru", "tanh"])
def test_steps_by_the_ten_thousand_are_not_gone_through(name: str) -> None:
    from torch._decomp import decomposition_table

    named = {"tanh": "rnn_tanh", "projected": "lstm"}
    operator = getattr(torch.ops.aten, named.get(name, name)).input
    before = dict(operator.py_kernels), decomposition_table[operator]
    torch.manual_seed(3)
    layer, x = LAYERS[name](num_layers=2, batch_first=True).eval(), torch.randn(1, 10_000, 4)
    model = load_model(layer, example_inputs=(x,))
    assert (dict(operator.py_kernels), decomposition_table[operator]) == before
    assert model.outputs[0].shape == (1, 10_000, 3 if name == "projected" else 6)
    found = evaluate(normalize(model.mod), [x.numpy()])
    with torch.no_grad():
        want = layer(x)[0].numpy()
    np.testing.assert_allclose(found[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "projected", "gru", "relu"])
@pytest.mark.parametrize("both", [False, True])
def test_how_many_steps_there_are_may_stay_open(name: str, both: bool) -> None:
    from collage.importers.torch import export_module

    torch.manual_seed(4)
    layer = LAYERS[name](num_layers=2, bidirectional=both, batch_first=True).eval()
    steps = torch.export.Dim("steps", min=2, max=500)
    exported = export_module(layer, torch.randn(2, 9, 4), ({1: steps},))
    for count in (3, 40):
        x = torch.randn(2, count, 4)
        found = evaluate(
            normalize(load_model(exported, shapes={"input": x.shape}).mod), [x.numpy()]
        )
        with torch.no_grad():
            want = layer(x)[0].numpy()
        np.testing.assert_allclose(found[0], want, rtol=1e-4, atol=1e-5)
