"""Complex numbers that go into a graph behind ``torch.compile``, or come out of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from collage.cost.models.roofline import DeviceSpec, RooflineCostModel
from collage.dynamo import compile_graph

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No test sees what another one compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _compiled(function: Any) -> Any:
    processor = DeviceSpec("a processor", 1e12, 1e12, 1e12, bytes_per_sec=50e9)
    options = {"targets": ["llvm"], "cost_model": RooflineCostModel(processor)}
    return torch.compile(function, backend=compile_graph, options=options)


def _filtered(x: Any, gain: Any) -> Any:
    """Two graphs: complex numbers come out of the first, and go into the second."""
    spectrum = torch.fft.rfft(x) * gain
    torch._dynamo.graph_break()
    return spectrum, torch.fft.irfft(spectrum.conj() * 2, n=8), spectrum.abs()


def test_complex_numbers_pass_between_graphs_and_to_the_program() -> None:
    fast = _compiled(_filtered)
    for seed in range(2):
        torch.manual_seed(seed)
        x, gain = torch.randn(3, 8), torch.randn(5, dtype=torch.complex64)
        for given in (gain, gain.conj()):
            torch.testing.assert_close(fast(x, given), _filtered(x, given), rtol=1e-4, atol=1e-5)
