"""Fourier transforms of round and awkward lengths, and those of windows."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.operators.case import Call, OperatorCase, call


def cases() -> Iterator[OperatorCase]:
    for rows, length in ((64, 512), (64, 400), (16, 1025), (64, 127), (64, 243), (8, 4096)):
        yield call("fourier", f"complex {rows}x{length}", _complex, (rows, length, 2))
        yield call("fourier", f"real {rows}x{length}", _real, (rows, length))
        inverse = functools.partial(_inverse, length=length)
        yield call("fourier", f"inverse real {rows}x{length}", inverse, (rows, length // 2 + 1, 2))
    yield call("fourier", "2-D 8x64x64", _image, (8, 64, 64))
    for size, hop, length in ((512, 128, 16000), (400, 160, 16000)):
        make = functools.partial(
            Call, functools.partial(_windows, hop=hop), (torch.hann_window(size),)
        )
        yield OperatorCase("fourier", f"windows of {size} of {length}", make, ((1, length),))
        frames = length // hop + 1
        back = functools.partial(
            Call, functools.partial(_signal, hop=hop), (torch.hann_window(size),)
        )
        name = f"windows of {size} back to {length}"
        yield OperatorCase("fourier", name, back, ((1, size // 2 + 1, frames, 2),))


def _complex(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.fft.rfft(x))


def _inverse(x: Tensor, length: int) -> Tensor:
    return torch.fft.irfft(torch.view_as_complex(x), length)


def _image(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.fft.rfft2(x))


def _windows(x: Tensor, window: Tensor, hop: int) -> Tensor:
    size = window.shape[0]
    return torch.view_as_real(torch.stft(x, size, hop, window=window, return_complex=True))


def _signal(x: Tensor, window: Tensor, hop: int) -> Tensor:
    return torch.istft(torch.view_as_complex(x), window.shape[0], hop, window=window)
