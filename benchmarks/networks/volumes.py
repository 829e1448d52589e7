"""Networks over videos and volumes, with random weights: 3-D ResNets and a 3-D U-Net."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

Convolution = Callable[[int, int, int, int], nn.Module]
"""Of channels before and behind, of those between if it has two, and its step."""


def whole(before: int, after: int, _: int, step: int) -> nn.Module:
    """Taps along all three axes."""
    return nn.Conv3d(before, after, 3, step, 1, bias=False)


def in_two(before: int, after: int, between: int, step: int) -> nn.Module:
    """Taps within planes, then those between them."""
    return nn.Sequential(
        nn.Conv3d(before, between, (1, 3, 3), (1, step, step), (0, 1, 1), bias=False),
        nn.BatchNorm3d(between), nn.ReLU(),
        nn.Conv3d(between, after, (3, 1, 1), (step, 1, 1), (1, 0, 0), bias=False),
    )  # fmt: skip


class _Block(nn.Module):
    def __init__(self, convolution: Convolution, before: int, after: int, step: int) -> None:
        super().__init__()
        between = before * after * 27 // (before * 9 + after * 3)
        self.body = nn.Sequential(
            convolution(before, after, between, step), nn.BatchNorm3d(after), nn.ReLU(),
            convolution(after, after, between, 1), nn.BatchNorm3d(after),
        )  # fmt: skip
        shortcut = nn.Conv3d(before, after, 1, step, bias=False)
        changes = step > 1 or before != after
        self.shortcut = nn.Sequential(shortcut, nn.BatchNorm3d(after)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def video_resnet(convolution: Convolution, classes: int = 400) -> nn.Module:
    """18 layers over frames (Tran et al. 2018): R3D with whole convolutions, else R(2+1)D."""
    if convolution is whole:
        stem = [nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)]
    else:
        stem = [
            nn.Conv3d(3, 45, (1, 7, 7), (1, 2, 2), (0, 3, 3), bias=False),
            nn.BatchNorm3d(45), nn.ReLU(),
            nn.Conv3d(45, 64, (3, 1, 1), 1, (1, 0, 0), bias=False),
        ]  # fmt: skip
    steps = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    steps += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    blocks = [_Block(convolution, *step) for step in steps]
    head = [nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(512, classes)]
    return nn.Sequential(*stem, nn.BatchNorm3d(64), nn.ReLU(), *blocks, *head)


def _twice(before: int, between: int, after: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(before, between, 3, padding=1), nn.BatchNorm3d(between), nn.ReLU(),
        nn.Conv3d(between, after, 3, padding=1), nn.BatchNorm3d(after), nn.ReLU(),
    )  # fmt: skip


class UNet3d(nn.Module):
    """Four levels (Cicek et al. 2016), with half of its channels and padding."""

    def __init__(self, width: int = 16, classes: int = 3) -> None:
        super().__init__()
        wide = [width << level for level in range(5)]
        self.down = nn.ModuleList(
            _twice(1 if level == 0 else wide[level], wide[level], wide[level + 1])
            for level in range(4)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose3d(wide[level + 2], wide[level + 2], 2, 2) for level in range(3)
        )
        self.joined = nn.ModuleList(
            _twice(wide[level + 2] + wide[level + 1], wide[level + 1], wide[level + 1])
            for level in range(3)
        )
        self.head = nn.Conv3d(wide[1], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.down[0](x)]
        for down in self.down[1:]:
            levels.append(down(nn.functional.max_pool3d(levels[-1], 2)))
        x = levels.pop()
        for level in (2, 1, 0):
            x = self.joined[level](torch.cat([self.up[level](x), levels[level]], dim=1))
        found: Tensor = self.head(x)
        return found


VOLUMES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "r3d_18": (partial(video_resnet, whole), (1, 3, 16, 112, 112)),
    "r2plus1d_18": (partial(video_resnet, in_two), (1, 3, 16, 112, 112)),
    "unet_3d": (UNet3d, (1, 1, 32, 64, 64)),
}
"""Each with the shape of its input."""


def volume_network(name: str, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A network that infers, and an input of it.

    Parameters
    ----------
    name : str
        Of ``VOLUMES``.
    seed : int
        Of weights and input.

    Returns
    -------
    network : nn.Module
        With weights as PyTorch draws them.
    x : Tensor
        Normally distributed.
    """
    torch.manual_seed(seed)
    make, shape = VOLUMES[name]
    return make().eval(), torch.randn(shape)
