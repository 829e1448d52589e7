"""Spectra and rotations of exported programs, which are complex inside, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    program_of,
    require_agreement,
    rows,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def _spectrum(x: Any, **options: Any) -> Any:
    return torch.stft(x, 32, 8, window=torch.hann_window(32), return_complex=True, **options)


def _mel(x: Any) -> Any:
    """As a speech front end has it."""
    power = _spectrum(x).abs().square()
    bands = torch.linspace(0, 1, 17 * 6).reshape(6, 17)
    return torch.log10(torch.clamp(bands @ power, min=1e-5))


def _rotated(x: Any, angles: Any) -> Any:
    """Rotary positions as complex factors."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    factors = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(pairs * factors.unsqueeze(0).unsqueeze(2)).flatten(3)


def _filtered(x: Any) -> Any:
    """Products in frequencies, as global filter networks have them."""
    whole = torch.fft.rfft2(x, dim=(1, 2), norm="ortho")
    weight = torch.view_as_complex(torch.linspace(-1, 1, 6 * 4 * 2).reshape(6, 4, 2))
    return torch.fft.irfft2(whole * weight[None, :, :, None], s=(6, 6), dim=(1, 2), norm="ortho")


CASES: Cases = {
    "spectrum": (lambda x: _spectrum(x).abs(), lambda: (rows(2, 100),)),
    "spectrum, uncentred, its parts": (
        lambda x: torch.view_as_real(_spectrum(x, center=False)),
        lambda: (rows(2, 100),),
    ),
    "spectrum, both sides, scaled": (
        lambda x: _spectrum(x, onesided=False, normalized=True).real,
        lambda: (rows(100),),
    ),
    "mel": (_mel, lambda: (rows(2, 100),)),
    "rotary": (_rotated, lambda: (rows(2, 5, 3, 8), rows(5, 4))),
    "where it is already": (
        lambda x: torch.view_as_real(torch.polar(x, x).to(x.device) * torch.fft.fft(x)),
        lambda: (rows(3, 4),),
    ),
    "filtered": (_filtered, lambda: (rows(2, 6, 6, 3),)),
    "cut into pieces": (
        lambda x: torch.view_as_real(torch.cat(torch.view_as_complex(x).split([1, 2], 1)[::-1], 1)),
        lambda: (rows(4, 3, 2),),
    ),
    "cut into one piece": (
        lambda x: torch.view_as_real(torch.view_as_complex(x).split([3], 1)[0] * 2),
        lambda: (rows(4, 3, 2),),
    ),
    "one by one": (
        lambda x: torch.view_as_real(torch.stack(torch.view_as_complex(x).unbind(1)[1:])),
        lambda: (rows(4, 3, 2),),
    ),
    "phase": (lambda x: torch.fft.rfft(x).angle().cos(), lambda: (rows(3, 9),)),
    "phase of the bins that are real": (
        lambda x: (
            torch.fft.rfft(x).angle()[:, ::5],
            torch.fft.rfft(x[:, :8]).angle()[:, ::4],
            torch.fft.fft(x).angle()[:, ::5],
        ),
        lambda: (rows(24, 10),),
    ),
    "there and back": (
        lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=9),
        lambda: (rows(3, 9),),
    ),
    "mixed tokens": (
        lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
        lambda: (rows(2, 5, 6),),
    ),
    "all axes": (
        lambda x: torch.fft.ifft2(torch.fft.fft2(x) / 3).imag + torch.fft.fftn(x).imag,
        lambda: (rows(3, 4, 5),),
    ),
    "arithmetic": (
        lambda a, b, c, d: torch.view_as_real(
            (torch.complex(a, b) / torch.complex(c, d.abs() + 1)).conj() - torch.complex(b, a) * 2j
        ),
        lambda: tuple(rows(3, 4) for _ in range(4)),
    ),
    "arithmetic in double precision": (
        lambda a, b: torch.view_as_real(
            torch.add(torch.complex(a, b), torch.complex(b, a), alpha=2) * (3 - 1j) + a.float() - 2
        ),
        lambda: (rows(3, 4).double(), rows(3, 4).double()),
    ),
    "real numbers first": (
        lambda x: torch.view_as_real(2 - x * torch.fft.fft(x) / (x.abs() + 1) + x * (2 + 0j)),
        lambda: (rows(3, 4),),
    ),
    "an exponential": (lambda x: torch.exp(x * 1j).real, lambda: (rows(3, 4),)),
    "moved about": (
        lambda x: torch.view_as_real(
            torch.cat([torch.fft.fft(x).flip(0), torch.fft.fft(x)[:, 1:3]], 1).sum(0)
        ),
        lambda: (rows(3, 4),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees(name: str) -> None:
    require_agreement(*CASES[name])


def test_factors_that_a_model_holds() -> None:
    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            angles = torch.outer(torch.arange(5.0), torch.linspace(0.1, 1, 4))
            self.register_buffer("factors", torch.polar(torch.ones_like(angles), angles))

        def forward(self, x: Any) -> Any:
            pairs = torch.view_as_complex(x.reshape(2, 5, 4, 2))
            return torch.view_as_real(pairs * self.factors).flatten(2)

    net = Net().eval()
    require_agreement(net, lambda: (rows(2, 5, 8),))


@pytest.mark.parametrize(
    ("function", "inputs", "reason"),
    [
        (lambda x: torch.fft.rfft(x), (3, 8), "output '.*' is complex; let the model"),
        (lambda x: torch.fft.rfft(x).abs(), (1, 9000), "length 9000; up to 8192"),
        (lambda x: torch.fft.rfft(x).asinh().abs(), (1, 8), "complex numbers"),
    ],
)
def test_refused(function: Callable[..., Any], inputs: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        load_model(program_of(function, rows(*inputs)))
