"""Small networks that nobody has met: of each family one, its sizes drawn at random.

Unlike the zoo's, which are fixed, every seed gives others. All have random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

Drawn = tuple[nn.Module, tuple[Tensor, ...]]


class _Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.body(x)
        return result


class _LastOf(nn.Module):
    """A recurrent network's last output, classified."""

    def __init__(self, recurrent: nn.RNNBase, width: int) -> None:
        super().__init__()
        self.recurrent, self.last = recurrent, nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        found, _ = self.recurrent(x)
        result: Tensor = self.last(found[:, -1])
        return result


class _UNet(nn.Module):
    """Two levels down and up again, with skips."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            _convolutions(inside, outside, 2)
            for inside, outside in ((3, width), (width, 2 * width), (2 * width, 4 * width))
        )
        self.rise = nn.ModuleList(
            nn.ConvTranspose2d(width * 2 * k, width * k, 2, stride=2) for k in (2, 1)
        )
        self.up = nn.ModuleList(_convolutions(width * 2 * k, width * k, 1) for k in (2, 1))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down[0](x)
        second = self.down[1](functional.max_pool2d(first, 2))
        x = self.down[2](functional.max_pool2d(second, 2))
        for skip, rise, up in zip((second, first), self.rise, self.up, strict=True):
            x = up(torch.cat([rise(x), skip], 1))
        result: Tensor = self.last(x)
        return result


def _convolutions(inside: int, outside: int, count: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index in range(count):
        layers += [
            nn.Conv2d(inside if index == 0 else outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


def _cnn(draw: Random) -> Drawn:
    width = draw.choice([16, 24, 32])
    size = draw.choice([32, 48, 64])
    blocks = [_Residual(_convolutions(width, width, 2)) for _ in range(draw.randint(2, 4))]
    module = nn.Sequential(
        *(_convolutions(3, width, 1), *blocks, nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10)),
    )
    return module, (torch.randn(1, 3, size, size),)


def _mlp(draw: Random) -> Drawn:
    widths = [draw.choice([64, 200, 512, 1000]) for _ in range(draw.randint(3, 6))]
    layers: list[nn.Module] = []
    for inside, outside in pairwise(widths):
        layers += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 10)), (
        torch.randn(draw.choice([1, 8]), widths[0]),
    )


def _transformer(draw: Random) -> Drawn:
    width = draw.choice([64, 128, 256])
    layer = nn.TransformerEncoderLayer(
        width, 4, 4 * width, activation="gelu", batch_first=True, norm_first=draw.random() < 0.5
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (
        torch.randn(1, draw.choice([32, 64, 128]), width),
    )


def _lstm(draw: Random) -> Drawn:
    width = draw.choice([32, 64, 128])
    module = _LastOf(nn.LSTM(32, width, draw.randint(1, 2), batch_first=True), width)
    return module, (torch.randn(1, draw.choice([12, 24, 40]), 32),)


def _gru(draw: Random) -> Drawn:
    width = draw.choice([32, 64, 128])
    module = _LastOf(nn.GRU(32, width, draw.randint(1, 2), batch_first=True), width)
    return module, (torch.randn(1, draw.choice([12, 24, 40]), 32),)


def _depthwise(draw: Random) -> Drawn:
    width, size = draw.choice([16, 32, 48]), draw.choice([48, 64, 96])

    def block(kernel: int) -> nn.Module:
        return _Residual(
            nn.Sequential(
                *(nn.Conv2d(width, 4 * width, 1), nn.BatchNorm2d(4 * width), nn.ReLU6()),
                nn.Conv2d(4 * width, 4 * width, kernel, padding=kernel // 2, groups=4 * width),
                *(nn.BatchNorm2d(4 * width), nn.ReLU6(), nn.Conv2d(4 * width, width, 1)),
            )
        )

    blocks = [block(draw.choice([3, 5])) for _ in range(draw.randint(2, 4))]
    module = nn.Sequential(
        *(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU6(), *blocks),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)),
    )
    return module, (torch.randn(1, 3, size, size),)


def _speech(draw: Random) -> Drawn:
    width, steps = draw.choice([32, 64, 96]), draw.choice([100, 200, 400])
    blocks = [
        _Residual(
            nn.Sequential(
                nn.Conv1d(width, width, 5, padding=2 * 2**index, dilation=2**index),
                *(nn.BatchNorm1d(width), nn.ReLU(), nn.Conv1d(width, width, 1)),
            )
        )
        for index in range(draw.randint(2, 4))
    ]
    module = nn.Sequential(
        nn.Conv1d(40, width, 11, 2, 5), nn.ReLU(), *blocks, nn.Conv1d(width, 29, 1)
    )
    return module, (torch.randn(1, 40, steps),)


def _unet(draw: Random) -> Drawn:
    size = draw.choice([32, 64])
    return _UNet(draw.choice([8, 16, 24])), (torch.randn(1, 3, size, size),)


FAMILIES: Mapping[str, Callable[[Random], Drawn]] = {
    "cnn": _cnn,
    "mlp": _mlp,
    "transformer": _transformer,
    "lstm": _lstm,
    "gru": _gru,
    "depthwise": _depthwise,
    "speech": _speech,
    "unet": _unet,
}


def drawn(family: str, seed: int) -> torch.export.ExportedProgram:
    """A network of a family, exported.

    Parameters
    ----------
    family : str
        One of ``FAMILIES``.
    seed : int
        Of its sizes and weights.
    """
    torch.manual_seed(seed)
    module, inputs = FAMILIES[family](Random(seed))
    return torch.export.export(module.eval(), inputs)
