"""Image networks in plain PyTorch: detection, small 3-D networks, several inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.network import (
    CLASSIC,
    DETECTION,
    MULTI,
    VOLUME,
    Network,
    image,
)  # fmt: skip


def _unit(before: int, after: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(after),
        nn.SiLU(),
    )  # fmt: skip


class _C2f(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.split = _unit(channels, channels, 1)
        self.inner = nn.Sequential(_unit(half, half), _unit(half, half))
        self.join = _unit(channels + half, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.split(x).chunk(2, 1)
        result: Tensor = self.join(torch.cat([first, second, second + self.inner(second)], 1))
        return result


class Yolo(nn.Module):
    """A detector in YOLOv8's manner: split stages, pooled pyramid, a path back up, two heads."""

    def __init__(self, width: int = 16, classes: int = 20) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(_unit(3, w, 3, 2), _unit(w, w * 2, 3, 2), _C2f(w * 2))
        self.mid = nn.Sequential(_unit(w * 2, w * 4, 3, 2), _C2f(w * 4))
        self.deep = nn.Sequential(_unit(w * 4, w * 8, 3, 2), _C2f(w * 8))
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.pooled = _unit(w * 32, w * 8, 1)
        self.up = _unit(w * 12, w * 4, 1)
        self.boxes = nn.ModuleList(nn.Conv2d(c, 64, 1) for c in (w * 4, w * 8))
        self.scores = nn.ModuleList(nn.Conv2d(c, classes, 1) for c in (w * 4, w * 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mid = self.mid(self.stem(x))
        deep = self.deep(mid)
        levels = [deep]
        for _ in range(3):
            levels.append(self.pool(levels[-1]))
        deep = self.pooled(torch.cat(levels, 1))
        mid = self.up(torch.cat([functional.interpolate(deep, scale_factor=2.0), mid], 1))
        boxes = [head(x).flatten(2) for head, x in zip(self.boxes, (mid, deep), strict=True)]
        scores = [head(x).flatten(2) for head, x in zip(self.scores, (mid, deep), strict=True)]
        bins = torch.cat(boxes, 2).unflatten(1, (4, 16)).softmax(2)
        places = torch.arange(16, dtype=bins.dtype, device=bins.device)
        return (bins * places[:, None]).sum(2), torch.cat(scores, 2).sigmoid()


class Hourglass(nn.Module):
    """CenterNet's heads over an encoder and a decoder of transposed convolutions."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.down = nn.Sequential(
            _unit(3, width, 7, 2), _unit(width, width * 2, 3, 2), _unit(width * 2, width * 4, 3, 2)
        )
        self.up = nn.Sequential(
            nn.ConvTranspose2d(width * 4, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.heat, self.size = nn.Conv2d(width, 10, 1), nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.up(self.down(x))
        heat = torch.sigmoid(self.heat(x))
        peaks = heat * (functional.max_pool2d(heat, 3, 1, 1) == heat).to(heat.dtype)
        return heat, self.size(x), peaks


class _Volume(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(before, after, 3, stride, 1, bias=False), nn.BatchNorm3d(after), nn.ReLU(),
            nn.Conv3d(after, after, 3, 1, 1, bias=False), nn.BatchNorm3d(after),
        )  # fmt: skip
        self.skip = nn.Conv3d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.skip(x))


class SmallVolumes(nn.Sequential):
    """A small residual network over volumes."""

    def __init__(self, width: int = 16) -> None:
        super().__init__(
            nn.Conv3d(1, width, 3, 1, 1), nn.ReLU(), _Volume(width, width * 2, 2),
            _Volume(width * 2, width * 4, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
            nn.Linear(width * 4, 10),
        )  # fmt: skip


class Siamese(nn.Module):
    """Two images through one network; how far apart they are, and both codes."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            _unit(3, width, 3, 2), _unit(width, width * 2, 3, 2), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(width * 2, 64),
        )  # fmt: skip

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b = (functional.normalize(self.tower(x), dim=1) for x in (left, right))
        return (a - b).norm(dim=1), a, b


class SpatialTransformer(nn.Module):
    """An image resampled where a small network says."""

    def __init__(self) -> None:
        super().__init__()
        self.locate = nn.Sequential(
            _unit(3, 16, 3, 2), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 6)
        )
        self.classify = nn.Sequential(_unit(3, 32, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                      nn.Linear(32, 10))  # fmt: skip
        self.register_buffer("same", torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, x: Tensor) -> Tensor:
        theta = (0.1 * self.locate(x) + self.same).view(-1, 2, 3)
        grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
        result: Tensor = self.classify(functional.grid_sample(x, grid, align_corners=False))
        return result


class LeNet(nn.Sequential):
    """The oldest of them, with local response normalization and average pools."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.LocalResponseNorm(5), nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120),
            nn.Tanh(), nn.Linear(120, 10), nn.LogSoftmax(1),
        )  # fmt: skip


NETWORKS = [
    Network("plain/yolo", DETECTION, Yolo, (image(1, 3, 256, 256),)),
    Network("plain/centernet", DETECTION, Hourglass, (image(1, 3, 192, 192),)),
    Network("plain/volumes", VOLUME, SmallVolumes, (image(1, 1, 24, 48, 48),)),
    Network("plain/siamese", MULTI, Siamese, (image(1, 3, 96, 96), image(1, 3, 96, 96))),
    Network("plain/spatial_transformer", MULTI, SpatialTransformer, (image(1, 3, 64, 64),)),
    Network("plain/lenet", CLASSIC, LeNet, (image(1, 1, 28, 28),)),
]
