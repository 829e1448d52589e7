"""Networks of pictures in plain PyTorch, of the kinds whose parts different libraries do best.

Random weights, nothing is downloaded: MobileNetV2, EfficientNet-B0, a small ConvNeXt, a U-Net with
group norms as diffusion models have, and a segmentation network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[Callable[[], nn.Module], tuple[int, ...]]
"""A network and the shape of its input."""


class _Inverted(nn.Module):
    """Sandler et al. 2018; with squeeze and excitation, Tan and Le 2019."""

    def __init__(self, shape: tuple[int, int, int, int, int], *, squeeze: bool) -> None:
        super().__init__()
        factor, outside, kernel, stride, inside = shape
        width = factor * inside
        act: Callable[[], nn.Module] = nn.SiLU if squeeze else nn.ReLU6
        first = [nn.Conv2d(inside, width, 1), nn.BatchNorm2d(width), act()] if factor > 1 else []
        self.wide = nn.Sequential(
            *first,
            nn.Conv2d(width, width, kernel, stride, kernel // 2, groups=width),
            *(nn.BatchNorm2d(width), act()),
        )
        few = max(1, inside // 4)
        self.gate = (
            nn.Sequential(
                *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, few, 1), nn.SiLU()),
                *(nn.Conv2d(few, width, 1), nn.Sigmoid()),
            )
            if squeeze
            else None
        )
        self.last = nn.Sequential(nn.Conv2d(width, outside, 1), nn.BatchNorm2d(outside))
        self.adds = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        wide = self.wide(x)
        narrow: Tensor = self.last(wide if self.gate is None else wide * self.gate(wide))
        return x + narrow if self.adds else narrow


_MOBILENET = (
    *((1, 16, 3, 1, 1), (6, 24, 3, 2, 2), (6, 32, 3, 2, 3), (6, 64, 3, 2, 4)),
    *((6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 3, 1, 1)),
)
_EFFICIENT = (
    *((1, 16, 3, 1, 1), (6, 24, 3, 2, 2), (6, 40, 5, 2, 2), (6, 80, 3, 2, 3)),
    *((6, 112, 5, 1, 3), (6, 192, 5, 2, 4), (6, 320, 3, 1, 1)),
)
"""Factor, channels, kernel, stride and repetitions of each stage."""


def _blocks(*, squeeze: bool) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU6()]
    inside = 32
    for factor, outside, kernel, stride, count in _EFFICIENT if squeeze else _MOBILENET:
        for number in range(count):
            shape = (factor, outside, kernel, 1 if number else stride, inside)
            layers.append(_Inverted(shape, squeeze=squeeze))
            inside = outside
    return layers


def _classifier(*, squeeze: bool) -> nn.Module:
    return nn.Sequential(
        *_blocks(squeeze=squeeze),
        *(nn.Conv2d(320, 1280, 1), nn.BatchNorm2d(1280), nn.ReLU6(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(1280, 1000)),
    )


class _NormOfChannels(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNextBlock(nn.Module):
    """Liu et al. 2022."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.dense = nn.Sequential(
            *(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU()),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.dense(self.depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return result


def _convnext() -> nn.Module:
    width = 40
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), _NormOfChannels(width)]
    for stage, count in enumerate((2, 2, 6, 2)):
        if stage:
            layers += [_NormOfChannels(width), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        layers += [_ConvNextBlock(width) for _ in range(count)]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(width), nn.Linear(width, 1000)
    )


class _UNet(nn.Module):
    """Ronneberger et al. 2015, with the norms and activations of Ho et al. 2020."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = ((3, width), (width, 2 * width), (2 * width, 4 * width))
        self.down = nn.ModuleList(self._pair(*size) for size in sizes)
        self.up = nn.ModuleList(
            self._pair(inside, outside)
            for inside, outside in ((6 * width, 2 * width), (3 * width, width))
        )
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _pair(inside: int, outside: int) -> nn.Module:
        layers: list[nn.Module] = []
        for channels in (inside, outside):
            layers.append(nn.Conv2d(channels, outside, 3, padding=1))
            layers += [nn.GroupNorm(8, outside), nn.SiLU()]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for stage in self.down:
            x = stage(functional.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for stage, skip in zip(self.up, kept[-2::-1], strict=True):
            x = stage(torch.cat([functional.interpolate(x, scale_factor=2.0), skip], 1))
        result: Tensor = self.last(x)
        return result


class _Segmentation(nn.Module):
    """MobileNetV2 with dilated convolutions behind it, each pixel classified."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*_blocks(squeeze=False)[:16])
        self.head = nn.Sequential(
            *(nn.Conv2d(96, 128, 3, padding=2, dilation=2), nn.BatchNorm2d(128), nn.ReLU()),
            nn.Conv2d(128, 21, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        classes = self.head(self.body(x))
        return functional.interpolate(classes, size=x.shape[2:], mode="bilinear").softmax(1)


NETWORKS: Mapping[str, Made] = {
    "mobilenet_v2": (lambda: _classifier(squeeze=False), (1, 3, 224, 224)),
    "efficientnet_b0": (lambda: _classifier(squeeze=True), (1, 3, 224, 224)),
    "convnext": (_convnext, (1, 3, 128, 128)),
    "unet": (_UNet, (1, 3, 64, 64)),
    "segmentation": (_Segmentation, (1, 3, 192, 192)),
}


def pictures(name: str, seed: int = 0) -> torch.export.ExportedProgram:
    """A network, exported.

    Parameters
    ----------
    name : str
        One of ``NETWORKS``.
    seed : int
        Of its weights.
    """
    torch.manual_seed(seed)
    make, shape = NETWORKS[name]
    module = make().eval()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            # As it comes, a norm changes nothing, and a mistake in it would not show.
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.8, 1.2)
    return torch.export.export(module, (torch.randn(*shape),))
