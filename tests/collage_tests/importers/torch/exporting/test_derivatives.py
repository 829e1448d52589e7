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


def _positive(x: Any) -> Any:
    return x @ x.mT + 3 * torch.eye(x.shape[-1])


WINDOWS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "means": (nn.AvgPool2d(2), (2, 3, 8, 6)),
    "means that overlap": (nn.AvgPool2d((3, 2), 1, (1, 0), count_include_pad=False), (2, 3, 8, 6)),
    "means up to the end": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), (2, 3, 8, 6)),
    "sums": (nn.AvgPool2d(2, divisor_override=3), (3, 8, 6)),
    "means along an axis": (nn.AvgPool1d(3, 2, 1), (2, 3, 8)),
    "means of volumes": (nn.AvgPool3d(2, 1), (2, 3, 4, 5, 3)),
    "adaptive means": (nn.AdaptiveAvgPool2d((3, 4)), (2, 3, 8, 6)),
    "adaptive means of volumes": (nn.AdaptiveAvgPool3d((3, 1, 2)), (2, 3, 4, 5, 3)),
    "maxima": (nn.MaxPool2d(3, 2, 1), (2, 3, 8, 6)),
    "adaptive maxima": (nn.AdaptiveMaxPool2d((3, 4)), (2, 3, 8, 6)),
    "nearest": (nn.Upsample(scale_factor=2), (2, 3, 5, 4)),
    "nearest, uneven": (nn.Upsample(scale_factor=1.7), (2, 3, 5, 4)),
    "nearest along an axis": (nn.Upsample(7, mode="nearest-exact"), (2, 3, 5)),
    "linear": (nn.Upsample(11, mode="linear"), (2, 3, 5)),
    "bilinear": (nn.Upsample(scale_factor=1.7, mode="bilinear"), (2, 3, 5, 4)),
    "bilinear with corners": (
        nn.Upsample((7, 3), mode="bilinear", align_corners=True),
        (2, 3, 5, 4),
    ),
    "trilinear": (nn.Upsample(scale_factor=2, mode="trilinear"), (2, 3, 2, 3, 4)),
    "bicubic": (nn.Upsample((7, 9), mode="bicubic"), (2, 3, 5, 4)),
    "instance norm": (nn.InstanceNorm2d(3, affine=True), (2, 3, 5, 4)),
    "inverse": (lambda x: torch.linalg.inv(_positive(x)), (2, 3, 3)),
    "solution": (lambda x: torch.linalg.solve(_positive(x), x), (2, 3, 3)),
    "Cholesky": (lambda x: torch.linalg.cholesky(_positive(x)), (2, 4, 4)),
    "determinant": (lambda x: torch.linalg.det(_positive(x)), (2, 4, 4)),
    "determinant of one turned": (lambda x: torch.linalg.det(_positive(x.mT)[0].mT), (2, 4, 4)),
    "its logarithm": (lambda x: torch.logdet(_positive(x)), (2, 4, 4)),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_derivatives_of_windows_and_matrices(case: str) -> None:
    torch.manual_seed(7)
    operator, shape = WINDOWS[case]

    def function(_layer: Any, x: Any) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            weights = torch.arange(1.0, 1 + operator(x).numel()).reshape(operator(x).shape)
            return torch.autograd.grad((operator(x) * weights.cos()).sum(), x)[0]

    _agree(Differentiating(function), lambda: rows(*shape))


def test_a_derivative_that_is_not_known_is_named() -> None:
    places = torch.linspace(-1, 1, 18).reshape(1, 3, 3, 2)

    def function(_layer: Any, x: Any) -> Any:
        return func.grad(lambda y: F.grid_sample(y, places, align_corners=False).sum())(x)

    with pytest.raises(ModelError, match="grid_sampler_2d_backward: a derivative that is not kno"):
        load_model(Differentiating(function), example_inputs=(rows(1, 2, 4, 4),))


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
