"""Networks in plain PyTorch that make images: generators and super-resolution."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.network import (
    CLASSIC,
    GENERATOR,
    SUPER_RESOLUTION,
    Network,
    image,
    noise,
)  # fmt: skip


class DcganGenerator(nn.Sequential):
    """Transposed convolutions from 100 numbers to an image of 64 by 64."""

    def __init__(self, width: int = 64) -> None:
        layers: list[nn.Module] = []
        sizes = [100, width * 8, width * 4, width * 2, width]
        for index, (before, after) in enumerate(itertools.pairwise(sizes)):
            stride, padding = (1, 0) if index == 0 else (2, 1)
            layers += [
                nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        super().__init__(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


class DcganDiscriminator(nn.Sequential):
    """Strided convolutions with leaky rectifiers."""

    def __init__(self, width: int = 64) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)]
        for before in (width, width * 2, width * 4):
            layers += [
                nn.Conv2d(before, before * 2, 4, 2, 1, bias=False),
                nn.BatchNorm2d(before * 2),
                nn.LeakyReLU(0.2),
            ]
        super().__init__(*layers, nn.Conv2d(width * 8, 1, 4), nn.Sigmoid())


class _ReflectedBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.InstanceNorm2d(channels),
            nn.ReLU(), nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.body(x)
        return result


class CycleGanGenerator(nn.Sequential):
    """Reflected borders, instance norms, residual blocks, transposed convolutions."""

    def __init__(self, width: int = 32, blocks: int = 4) -> None:
        super().__init__(
            nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width * 2, 3, 2, 1), nn.InstanceNorm2d(width * 2), nn.ReLU(),
            nn.Conv2d(width * 2, width * 4, 3, 2, 1), nn.InstanceNorm2d(width * 4), nn.ReLU(),
            *(_ReflectedBlock(width * 4) for _ in range(blocks)),
            nn.ConvTranspose2d(width * 4, width * 2, 3, 2, 1, output_padding=1),
            nn.InstanceNorm2d(width * 2), nn.ReLU(),
            nn.ConvTranspose2d(width * 2, width, 3, 2, 1, output_padding=1),
            nn.InstanceNorm2d(width), nn.ReLU(),
            nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh(),
        )  # fmt: skip


class Pix2Pix(nn.Module):
    """A U-Net of strided and transposed convolutions."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        down, up = [3, width, width * 2, width * 4, width * 8], []
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
            for a, b in itertools.pairwise(down)
        )
        up = [(width * 8, width * 4), (width * 8, width * 2), (width * 4, width), (width * 2, 3)]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 4, 2, 1) for a, b in up)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        for index, layer in enumerate(self.up):
            x = layer(x if index == 0 else torch.cat([x, kept[-1 - index]], 1))
            x = torch.tanh(x) if index == len(self.up) - 1 else functional.relu(x)
        return x


class Modulated(nn.Module):
    """StyleGAN2's: a style scales the weights of each sample's convolution, then their norm."""

    def __init__(self, width: int = 64, style: int = 64) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, width, 8, 8))
        self.mapping = nn.Sequential(nn.Linear(style, style), nn.LeakyReLU(0.2))
        self.styles = nn.ModuleList(nn.Linear(style, width) for _ in range(3))
        self.weights = nn.ParameterList(torch.randn(width, width, 3, 3) for _ in range(3))
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, code: Tensor) -> Tensor:
        style = self.mapping(code)
        batch = code.shape[0]
        x = self.start.expand(batch, -1, -1, -1)
        for affine, weight in zip(self.styles, self.weights, strict=True):
            scaled = weight[None] * (affine(style) + 1)[:, None, :, None, None]
            norm = torch.rsqrt(scaled.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8)
            kernel = (scaled * norm).flatten(0, 1)
            x = functional.interpolate(x, scale_factor=2, mode="bilinear")
            joined = functional.conv2d(x.flatten(0, 1)[None], kernel, padding=1, groups=batch)
            x = functional.leaky_relu(joined.view(batch, -1, *joined.shape[2:]), 0.2)
        result: Tensor = self.last(x)
        return result


class Espcn(nn.Sequential):
    """Convolutions, then pixels shuffled out of channels."""

    def __init__(self, scale: int = 3) -> None:
        super().__init__(
            nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
            nn.Conv2d(32, scale * scale, 3, padding=1), nn.PixelShuffle(scale), nn.Sigmoid(),
        )  # fmt: skip


class Fsrcnn(nn.Sequential):
    """Thin convolutions with parametric rectifiers, and one wide transposed convolution."""

    def __init__(self, width: int = 56, thin: int = 12) -> None:
        super().__init__(
            nn.Conv2d(1, width, 5, padding=2), nn.PReLU(width),
            nn.Conv2d(width, thin, 1), nn.PReLU(thin),
            *(layer for _ in range(4) for layer in (nn.Conv2d(thin, thin, 3, padding=1),
                                                    nn.PReLU(thin))),
            nn.Conv2d(thin, width, 1), nn.PReLU(width),
            nn.ConvTranspose2d(width, 1, 9, 3, 4, output_padding=2),
        )  # fmt: skip


class _EdsrBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + 0.1 * self.body(x)
        return result


class Edsr(nn.Module):
    """Residual blocks without norms, shuffled up twice."""

    def __init__(self, width: int = 64, blocks: int = 8) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(_EdsrBlock(width) for _ in range(blocks)))
        self.tail = nn.Sequential(
            nn.Conv2d(width, width * 4, 3, padding=1), nn.PixelShuffle(2),
            nn.Conv2d(width, width * 4, 3, padding=1), nn.PixelShuffle(2),
            nn.Conv2d(width, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        result: Tensor = self.tail(x + self.body(x))
        return result


class _DenseBlock(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(width + i * growth, growth if i < 3 else width, 3, padding=1)
            for i in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        kept = [x]
        for layer in self.layers[:-1]:
            kept.append(functional.leaky_relu(layer(torch.cat(kept, 1)), 0.2))
        result: Tensor = x + 0.2 * self.layers[-1](torch.cat(kept, 1))
        return result


class Esrgan(nn.Module):
    """Residual dense blocks, resized by nearest neighbours."""

    def __init__(self, width: int = 32, blocks: int = 3) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(_DenseBlock(width, 16) for _ in range(blocks)))
        self.up = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.tail = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        x = x + self.body(x)
        for layer in self.up:
            x = functional.leaky_relu(layer(functional.interpolate(x, scale_factor=2.0)), 0.2)
        result: Tensor = self.tail(x)
        return result


class Rcan(nn.Module):
    """Channel attention: a squeeze and excitation in every residual block."""

    def __init__(self, width: int = 32, blocks: int = 4) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.bodies = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                          nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks)
        )  # fmt: skip
        self.gates = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 8, 1), nn.ReLU(),
                          nn.Conv2d(width // 8, width, 1), nn.Sigmoid())
            for _ in range(blocks)
        )  # fmt: skip
        self.tail = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        for body, gate in zip(self.bodies, self.gates, strict=True):
            y = body(x)
            x = x + y * gate(y)
        result: Tensor = self.tail(x)
        return result


NETWORKS = [
    Network("plain/dcgan_generator", GENERATOR, DcganGenerator, (noise(1, 100, 1, 1),)),
    Network("plain/dcgan_discriminator", CLASSIC, DcganDiscriminator, (image(1, 3, 64, 64),)),
    Network("plain/cyclegan", GENERATOR, CycleGanGenerator, (image(1, 3, 128, 128),)),
    Network("plain/pix2pix", GENERATOR, Pix2Pix, (image(1, 3, 128, 128),)),
    Network("plain/stylegan2", GENERATOR, Modulated, (noise(2, 64),)),
    Network("plain/espcn", SUPER_RESOLUTION, Espcn, (image(1, 1, 96, 96),)),
    Network("plain/fsrcnn", SUPER_RESOLUTION, Fsrcnn, (image(1, 1, 96, 96),)),
    Network("plain/edsr", SUPER_RESOLUTION, Edsr, (image(1, 3, 64, 64),)),
    Network("plain/esrgan", SUPER_RESOLUTION, Esrgan, (image(1, 3, 64, 64),)),
    Network("plain/rcan", SUPER_RESOLUTION, Rcan, (image(1, 3, 64, 64),)),
]
