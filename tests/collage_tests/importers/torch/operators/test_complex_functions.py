"""Functions and products of complex numbers inside exported programs, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.collage_tests.importers.torch.torch_functions import Cases, require_agreement, rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "reciprocal": lambda z: z.reciprocal(),
    "sqrt": lambda z: z.sqrt(),
    "rsqrt": lambda z: z.rsqrt(),
    "log": lambda z: z.log(),
    "log2": lambda z: z.log2(),
    "log10": lambda z: z.log10(),
    "log1p": lambda z: z.log1p(),
    "expm1": lambda z: z.expm1(),
    "square": lambda z: z.square(),
    "a whole power": lambda z: z**5,
    "a negative power": lambda z: z**-2,
    "no power": lambda z: z**0,
    "a broken power": lambda z: z**1.5,
    "a complex power": lambda z: z ** (z.flip(0) / 2),
    "a power of a number": lambda z: 2**z,
    "sin": lambda z: z.sin(),
    "cos": lambda z: z.cos(),
    "tan": lambda z: z.tan(),
    "sinh": lambda z: z.sinh(),
    "cosh": lambda z: z.cosh(),
    "tanh": lambda z: z.tanh(),
    "tanh of much": lambda z: (z * 100).tanh(),
    "sigmoid": lambda z: z.sigmoid(),
    "sgn": lambda z: z.sgn(),
    "sum": lambda z: z.sum()[None],
    "mean": lambda z: z.mean()[None],
    "prod": lambda z: z.prod()[None],
    "prod of rows": lambda z: z.prod(-1, keepdim=True),
    "cumsum": lambda z: z.cumsum(-1),
    "where": lambda z: torch.where(z.real > 0, z, z.imag),
    "masked": lambda z: z.masked_fill(z.real > 0, 2),
    "adjoint": lambda z: z.mH + 1j,
    "scalars": lambda z: (2 - z / 3) * 2 + 1,
    "triangle": lambda z: torch.tril(z),
    "gathered": lambda z: z.gather(1, torch.tensor([[1, 0], [2, 2], [0, 1]])),
    "made": lambda z: torch.zeros_like(z) + torch.full((4,), 1 - 2j) + torch.ones_like(z),
    "outer product": lambda z: torch.outer(z[0], z[1]),
    "kronecker product": lambda z: torch.kron(z, z),
    "inner products": lambda z: torch.stack([torch.vdot(z[0], z[1]), torch.dot(z[0], z[1])]),
    "times a row": lambda z: z @ z[0],
    "times real ones": lambda z: z @ z.real.mT.to(z.dtype),
    "inverse": lambda z: torch.linalg.inv(z[:, :3] + 3 * torch.eye(3)),
    "solved": lambda z: torch.linalg.solve(z[:, :3] + 3 * torch.eye(3), z),
    "solved for a row": lambda z: torch.linalg.solve(z[:, :3] + 3 * torch.eye(3), z[:, 0]),
    "solved from the right": lambda z: torch.linalg.solve(
        z[:, :3] + 3 * torch.eye(3), z.mT, left=False
    ),
    "with a sum": lambda z: torch.addmm(z[:, :3], z, z.mH, beta=0.5, alpha=2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees(name: str) -> None:
    def function(a: Any, b: Any) -> Any:
        found = FUNCTIONS[name](torch.complex(a, b))
        return torch.view_as_real(found.resolve_conj())

    require_agreement(function, lambda: (rows(3, 4), rows(3, 4)))


def test_what_is_real_of_complex_ones() -> None:
    def function(a: Any, b: Any) -> Any:
        z = torch.complex(a, b)
        return z == z.flip(0).flip(0), z != 0, z.norm(dim=-1), z.conj().imag * 1, torch.isfinite(z)

    require_agreement(function, lambda: (rows(3, 4), rows(3, 4)))


def _weights(*shape: int) -> Any:
    return torch.view_as_complex(torch.linspace(-1, 1, 2 * _count(shape)).reshape(*shape, 2))


def _count(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def _operator_layer(x: Any) -> Any:
    """As a Fourier neural operator mixes the low frequencies, of both signs."""
    spectrum, found = (
        torch.fft.rfft2(x),
        torch.zeros(2, 4, 12, 7, dtype=torch.cfloat).requires_grad_(False),
    )
    for low in (slice(0, 3), slice(-3, None)):
        mixed = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, low, :3], _weights(4, 4, 3, 3))
        found[:, :, low, :3] = mixed
    return torch.fft.irfft2(found, s=(12, 12))


def _state_space(x: Any) -> Any:
    """A long convolution whose kernel is a sum of decaying oscillations."""
    rates = -torch.linspace(0.1, 1, 8) + 1j * torch.linspace(0, 3, 8)
    powers = torch.exp(rates[:, None] * torch.arange(16))
    kernel = 2 * torch.einsum("hn,nl->hl", _weights(4, 8) * (rates.exp() - 1) / rates, powers).real
    return torch.fft.irfft(torch.fft.rfft(x, n=32) * torch.fft.rfft(kernel, n=32), n=32)[..., :16]


def _linear_recurrence(x: Any) -> Any:
    state, found = torch.zeros(2, 6, dtype=torch.cfloat), []
    for step in range(5):
        state = _weights(6).tanh() * state + x[:, step].to(torch.cfloat) @ _weights(4, 6)
        found.append((state @ _weights(6, 3)).real)
    return torch.stack(found, 1)


def _beam(a: Any, b: Any, mask: Any) -> Any:
    """Microphones weighted so that noise is least."""
    x = torch.complex(a, b)
    speech, noise = (torch.einsum("bft,bcft,beft->bfce", m, x, x.conj()) for m in (mask, 3 - mask))
    weights = torch.linalg.solve(noise + torch.eye(3), speech)
    trace = torch.diagonal(weights, dim1=-2, dim2=-1).sum(-1)
    found = torch.einsum("bfc,bcft->bft", (weights[..., 0] / trace[..., None]).conj(), x)
    return found.real, found.imag


NETWORKS: Cases = {
    "operator layer": (_operator_layer, lambda: (rows(2, 4, 12, 12),)),
    "state space": (_state_space, lambda: (rows(2, 4, 16),)),
    "linear recurrence": (_linear_recurrence, lambda: (rows(2, 5, 4),)),
    "beam": (_beam, lambda: (rows(2, 3, 4, 9), rows(2, 3, 4, 9), rows(2, 4, 9).sigmoid())),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree(name: str) -> None:
    require_agreement(*NETWORKS[name])


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_a_dense_layer_agrees(batch: tuple[int, ...]) -> None:
    net = torch.nn.Linear(6, 5, dtype=torch.cfloat).requires_grad_(False)

    def function(a: Any, b: Any) -> Any:
        return torch.view_as_real(net(torch.complex(a, b)))

    require_agreement(function, lambda: (rows(*batch, 6), rows(*batch, 6)))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_agrees(groups: int) -> None:
    net = torch.nn.Conv2d(
        4, 6, 3, padding=1, stride=2, groups=groups, dtype=torch.cfloat
    ).requires_grad_(False)

    def function(a: Any, b: Any) -> Any:
        return net(torch.complex(a, b)).abs()

    require_agreement(function, lambda: (rows(2, 4, 7, 7), rows(2, 4, 7, 7)))
