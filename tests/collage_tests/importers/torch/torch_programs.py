"""Exported programs for tests, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)


class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A convolution with batch norm, then a dense layer with layer norm and GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.dense = torch.nn.Linear(8, 16)
        self.layer_norm = torch.nn.LayerNorm(16)
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 1.5)

    def forward(self, image: Any) -> Any:
        x = torch.nn.functional.relu6(self.norm(self.conv(image)))
        x = self.layer_norm(self.dense(x.mean((2, 3))))
        return torch.nn.functional.gelu(x)


def exported(**kwargs: Any) -> Any:
    torch.manual_seed(0)
    return torch.export.export(Block().eval(), (torch.randn(2, 3, 16, 16),), **kwargs)


def archive(folder: Path) -> Path:
    path = folder / "block.pt2"
    torch.export.save(exported(), path)
    return path


class Folded(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Guards on an open dimension, one that depends on another, and an expression as a size."""

    def forward(self, x: Any, y: Any) -> Any:
        x = x.relu() if x.shape[0] * 3 > 7 else x
        return x.reshape(2, -1) + y[0], x[: x.shape[0] // 2]


def open_archive(folder: Path) -> Path:
    half = torch.export.Dim("half", min=2, max=6)
    program = torch.export.export(
        *(Folded(), (torch.ones(6, 5), torch.ones(7))),
        dynamic_shapes={"x": {0: 2 * half}, "y": {0: 2 * half + 1}},
    )
    path = folder / "open.pt2"
    torch.export.save(program, path)
    return path


class Counting(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Its results depend on what earlier calls wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return x * self.calls
