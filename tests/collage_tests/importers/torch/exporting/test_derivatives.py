"""Modules that differentiate as they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from tests.collage_tests.importers.torch.torch_functions import rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
nn, F, func = torch.nn, torch.nn.functional, torch.func


class Differentiating(nn.Module):  # type: ignore[misc,name-defined]
    """A function of a layer and inputs."""

    def __init__(self, function: Callable[..., Any], layer: Any = None) -> None:
        super().__init__()
        self.function = function
        self.layer = layer or nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4), nn.SiLU())

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.layer, *inputs)


def _forces(layer: Any, places: Any) -> Any:
    with torch.enable_grad():
        places = places.detach().requires_grad_()
        energy = layer(places).sum() + (-torch.cdist(places, places)).exp().sum()
        return energy, -torch.autograd.grad(energy, places)[0]


def _laplacian(layer: Any, x: Any) -> Any:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        slope = torch.autograd.grad(layer(x).sum(), x, create_graph=True)[0]
        return slope, torch.autograd.grad(slope[:, 0].sum(), x)[0]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "forces": _forces,
    "second derivatives": _laplacian,
    "a gradient": lambda layer, x: func.grad(lambda y: layer(y).sum())(x),
    "a Jacobian": lambda layer, x: func.vmap(func.jacrev(layer))(x),
    "a Jacobian forwards": lambda layer, x: func.vmap(func.jacfwd(lambda y: layer(y).sin()))(x),
    "a direction": lambda layer, x: func.jvp(lambda y: layer[0](y).sin(), (x,), (x,)),
    "products with a vector": lambda layer, x: func.vjp(layer, x)[1](layer(x))[0],
}

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "convolution": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), (2, 3, 8, 7)),
    "along one axis": (lambda: nn.Conv1d(4, 6, 3, groups=2, dilation=2), (2, 4, 9)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 5, 5)),
    "activations": (lambda: nn.Sequential(nn.Mish(), nn.SiLU(), nn.GELU(), nn.Softplus()), (2, 6)),
    "norms": (lambda: nn.Sequential(nn.LayerNorm(6), nn.BatchNorm1d(6)), (2, 6)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
}


def _agree(net: Any, draw: Callable[[], Any]) -> None:
    net.eval()
    mod = normalize(load_model(net, example_inputs=(draw(),)).mod)
    x = draw()
    expected = net(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = evaluate(mod, [x.numpy()])
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == tuple(theirs.shape)
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", FUNCTIONS)
def test_derivatives_are_operators(case: str) -> None:
    torch.manual_seed(7)
    _agree(Differentiating(FUNCTIONS[case]), lambda: rows(5, 3))


@pytest.mark.parametrize("case", LAYERS)
def test_derivatives_of_layers(case: str) -> None:
    torch.manual_seed(7)
    make, shape = LAYERS[case]

    def function(layer: Any, x: Any) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(layer(x).square().sum(), x)[0]

    _agree(Differentiating(function, make()), lambda: rows(*shape))


def test_distances() -> None:
    def function(_layer: Any, x: Any) -> Any:
        return func.grad(lambda y: torch.cdist(y, x.flip(0) * 2, p=1).square().sum())(x)

    _agree(Differentiating(function), lambda: rows(5, 3))


def test_a_program_that_is_half_differentiated_is_refused() -> None:
    net = Differentiating(lambda layer, x: func.jvp(layer, (x,), (x,))).eval()
    program = torch.export.export(net, (rows(5, 3),), strict=False)
    with pytest.raises(ModelError, match=r"give the torch.nn.Module, with example_inputs"):
        load_model(program)
    # PyTorch is not left inside of a level of differentiation.
    assert torch.zeros(3).data_ptr()


def test_what_data_decide_beside_derivatives_is_refused() -> None:
    def function(layer: Any, x: Any) -> Any:
        slope = func.grad(lambda y: layer(y).sum())(x)
        return slope * 2 if slope.sum() > 0 else slope

    with pytest.raises(ModelError, match="differentiates as it runs, which cannot be written out"):
        load_model(Differentiating(function), example_inputs=(rows(5, 3),))
