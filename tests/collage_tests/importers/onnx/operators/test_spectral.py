"""Fourier transforms of ONNX, beside numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.collage_tests.importers.onnx.onnx_models import (
    by_importer,
    fresh,
    model_of,
    require_same,
)


@pytest.mark.parametrize("length", [None, 5, 8, 12])
@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_fourier_transforms(length: int | None, inverse: int, onesided: int) -> None:
    real = onesided and not inverse
    x = fresh(2, 8, 3, 1 if real else 2)
    numbers = x[..., 0].astype("complex128") + (0 if real else 1j * x[..., 1])
    names, constants = ["x"], {"axis": np.array(1)}
    if length is not None:
        constants["length"] = np.array(length)
    names += ["length" if length is not None else "", "axis"]
    node = helper.make_node("DFT", names, ["y"], inverse=inverse, onesided=onesided)
    model = model_of([node], {"x": x}, ["y"], constants, opset=20)
    if inverse and onesided:
        values = np.fft.irfft(numbers, length, axis=1)
        wanted = values[..., None]
    else:
        transform = {(0, 0): np.fft.fft, (1, 0): np.fft.ifft, (0, 1): np.fft.rfft}
        values = transform[inverse, onesided](numbers if not real else numbers.real, length, axis=1)
        wanted = np.stack([values.real, values.imag], -1)
    require_same(by_importer(model, {"x": x}), [wanted.astype("float32")])


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_short_time_fourier_transform(parts: int) -> None:
    """Of real numbers the last axis may be missing."""
    x = fresh(2, 32, parts) if parts else fresh(2, 32)
    node = helper.make_node(
        "STFT", ["x", "step", "window", "length"], ["y"], onesided=int(parts < 2)
    )
    constants = {
        "step": np.array(5),
        "window": np.hanning(8).astype("float32"),
        "length": np.array(8),
    }
    model = model_of([node], {"x": x}, ["y"], constants)
    (found,) = by_importer(model, {"x": x})
    numbers = x[..., 0] + 1j * x[..., 1] if parts == 2 else x.reshape(2, 32)
    transform = np.fft.rfft if parts < 2 else np.fft.fft
    rows = [transform(numbers[:, i : i + 8] * constants["window"]) for i in range(0, 25, 5)]
    values = np.stack(rows, 1)
    require_same([found], [np.stack([values.real, values.imag], -1).astype("float32")])
