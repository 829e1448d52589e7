"""Modules that keep numbers in buffers, as codecs for sound keep their strides and paddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.cost.models import RooflineCostModel

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


class Padded(torch.nn.Module):
    """A convolution that pads by how many frames there are to be; the last buffer changes."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(2, 3, 5, stride=stride)
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("stride", torch.tensor(stride))
        self.register_buffer("size", torch.tensor(5), persistent=False)
        self.register_buffer("is_causal", torch.tensor(True))

    def forward(self, x: Any) -> Any:
        frames = (x.shape[-1] - self.size) / self.stride + 1
        wanted = (torch.ceil(frames).to(torch.int64) - 1) * self.stride + self.size
        more = wanted - x.shape[-1]
        if self.is_causal and more > 0:
            x = torch.nn.functional.pad(x, (0, int(more)))
        return self.norm(self.conv(x))


def test_is_exported_and_left_as_it_was(tmp_path: Path) -> None:
    net = torch.nn.Sequential(Padded(3), torch.nn.ReLU(), Padded(2)).eval()
    x = torch.randn(1, 2, 36)[:, :, :35]
    net[2].conv = torch.nn.Conv1d(3, 3, 5, stride=2)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    buffers = [name for name, _ in net.named_buffers()]
    with torch.no_grad():
        meant = net(x).numpy()
    result = collage.optimize(net, ["llvm"], example_inputs=(x,), cost_model=RooflineCostModel())
    found = collage.load(result.export(tmp_path))(x.numpy())
    np.testing.assert_allclose(found, meant, rtol=1e-4, atol=1e-5)
    assert [name for name, _ in net.named_buffers()] == buffers
    assert net.state_dict().keys() == before.keys()
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    with torch.no_grad():
        np.testing.assert_array_equal(net(x).numpy(), meant)
