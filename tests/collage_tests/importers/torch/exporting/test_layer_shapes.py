"""Recurrent layers, and distances, are traced without going through what they consist of."""

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


class Distances(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any, y: Any) -> Any:
        return torch.cdist(x, y), torch.cdist(x, y, 1.0)


@pytest.mark.parametrize("counts", [(4, 40), (40, 4)])
def test_how_many_points_there_are_may_stay_open(counts: tuple[int, int]) -> None:
    """PyTorch takes distances of more than 25 in another way, and wants to know that they are."""
    from collage.importers.torch import export_module

    torch.manual_seed(5)
    traced, given = counts
    points = torch.export.Dim("points", min=2, max=50)
    y = torch.randn(3, 8) + 9
    exported = export_module(Distances(), (torch.randn(traced, 8), y), ({0: points}, None))
    x = torch.randn(given, 8) + 9
    x[:2] = y[:2]
    mod = normalize(load_model(exported, shapes={"x": x.shape}).mod)
    for mine, theirs in zip(
        evaluate(mod, [x.numpy(), y.numpy()]), Distances()(x.double(), y.double()), strict=True
    ):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shapes", [((300, 64), (290, 64)), ((2, 200, 64), (2, 1, 210, 64))])
def test_distances_of_many_points_by_products(shapes: tuple[Any, Any]) -> None:
    torch.manual_seed(6)
    x, y = (torch.randn(shape) + 50 for shape in shapes)
    mod = normalize(load_model(Distances(), example_inputs=(x, y)).mod)
    found = evaluate(mod, [x.numpy(), y.numpy()])
    for mine, theirs in zip(found, Distances()(x.double(), y.double()), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-4)
