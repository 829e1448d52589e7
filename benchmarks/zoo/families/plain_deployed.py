"""Networks in plain PyTorch as products have them: text lines, speakers, videos, one token."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.network import (
    DECODER,
    RECURRENT,
    SEGMENTATION,
    SPEECH,
    SUPER_RESOLUTION,
    VOLUME,
    Network,
    image,
    noise,
    tokens,
)  # fmt: skip


def _grouped(before: int, after: int, groups: int = 8) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(groups, after), nn.SiLU(),
        nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(groups, after), nn.SiLU(),
    )  # fmt: skip


class GroupUnet(nn.Module):
    """A U-Net with group norms, and transposed convolutions on its way up."""

    def __init__(self, width: int = 32, depth: int = 4, classes: int = 5) -> None:
        super().__init__()
        widths = [width << i for i in range(depth)]
        self.first = _grouped(3, width)
        self.down = nn.ModuleList(_grouped(w, 2 * w) for w in widths[:-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.join = nn.ModuleList(_grouped(2 * w, w) for w in widths[-2::-1])
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.first(x)]
        for layer in self.down:
            levels.append(layer(functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([levels.pop(), up(x)], 1))
        result: Tensor = self.last(x)
        return result


class _Squeezed3d(nn.Module):
    """X3D's block: depthwise over time and space, squeezed and excited, between two products."""

    def __init__(self, before: int, inner: int, after: int, stride: int, *, squeeze: bool) -> None:
        super().__init__()
        self.enter = nn.Sequential(
            nn.Conv3d(before, inner, 1, bias=False), nn.BatchNorm3d(inner), nn.ReLU()
        )
        self.depthwise = nn.Sequential(
            nn.Conv3d(inner, inner, 3, (1, stride, stride), 1, groups=inner, bias=False),
            nn.BatchNorm3d(inner),
        )
        narrow = max(8, inner // 16)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool3d(1), nn.Conv3d(inner, narrow, 1), nn.ReLU(),
            nn.Conv3d(narrow, inner, 1), nn.Sigmoid(),
        ) if squeeze else None  # fmt: skip
        self.leave = nn.Sequential(nn.Conv3d(inner, after, 1, bias=False), nn.BatchNorm3d(after))
        self.skip = (
            nn.Identity()
            if before == after and stride == 1
            else nn.Conv3d(before, after, 1, (1, stride, stride), bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.enter(x))
        if self.squeeze is not None:
            y = y * self.squeeze(y)
        return functional.relu(self.leave(functional.silu(y)) + self.skip(x))


class X3d(nn.Module):
    """A video network of depthwise 3-D convolutions, of X3D-S's widths."""

    def __init__(self, depths: tuple[int, ...] = (3, 5, 11, 7), classes: int = 400) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, 24, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False),
            nn.Conv3d(24, 24, (5, 1, 1), padding=(2, 0, 0), groups=24, bias=False),
            nn.BatchNorm3d(24), nn.ReLU(),
        )  # fmt: skip
        blocks, before = [], 24
        for depth, width in zip(depths, (24, 48, 96, 192), strict=True):
            inner = width * 9 // 4
            for i in range(depth):
                stride = 2 if i == 0 else 1
                blocks.append(_Squeezed3d(before, inner, width, stride, squeeze=i % 2 == 0))
                before = width
        self.blocks = nn.Sequential(*blocks)
        self.wide = nn.Sequential(
            nn.Conv3d(192, 432, 1, bias=False), nn.BatchNorm3d(432), nn.ReLU()
        )
        self.last = nn.Sequential(nn.Linear(432, 2048), nn.ReLU(), nn.Linear(2048, classes))

    def forward(self, video: Tensor) -> Tensor:
        x = self.wide(self.blocks(self.stem(video)))
        result: Tensor = self.last(x.mean((2, 3, 4)))
        return result


class _Res2Block(nn.Module):
    """ECAPA's: channels in eight parts, each convolved with the one before it, then squeezed."""

    def __init__(self, width: int, dilation: int, parts: int = 8) -> None:
        super().__init__()
        self.parts = parts
        self.enter = nn.Sequential(nn.Conv1d(width, width, 1), nn.ReLU(), nn.BatchNorm1d(width))
        self.inner = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width // parts, width // parts, 3, padding=dilation, dilation=dilation),
                nn.ReLU(), nn.BatchNorm1d(width // parts),
            )
            for _ in range(parts - 1)
        )  # fmt: skip
        self.leave = nn.Sequential(nn.Conv1d(width, width, 1), nn.ReLU(), nn.BatchNorm1d(width))
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool1d(1), nn.Conv1d(width, 128, 1), nn.ReLU(),
            nn.Conv1d(128, width, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self.enter(x).chunk(self.parts, 1)
        found, last = [first], torch.zeros_like(first)
        for layer, part in zip(self.inner, others, strict=True):
            last = layer(part + last)
            found.append(last)
        y = self.leave(torch.cat(found, 1))
        return x + y * self.squeeze(y)


class EcapaTdnn(nn.Module):
    """Who is speaking: dilated 1-D convolutions, then means and spreads over time, weighted."""

    def __init__(self, mels: int = 80, width: int = 512, code: int = 192) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv1d(mels, width, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(width)
        )
        self.blocks = nn.ModuleList(_Res2Block(width, d) for d in (2, 3, 4))
        self.join = nn.Sequential(nn.Conv1d(3 * width, 1536, 1), nn.ReLU())
        self.weigh = nn.Sequential(
            nn.Conv1d(3 * 1536, 128, 1), nn.ReLU(), nn.BatchNorm1d(128), nn.Tanh(),
            nn.Conv1d(128, 1536, 1), nn.Softmax(2),
        )  # fmt: skip
        self.last = nn.Sequential(nn.BatchNorm1d(2 * 1536), nn.Linear(2 * 1536, code))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel - mel.mean(-1, keepdim=True))
        found = []
        for block in self.blocks:
            x = block(x)
            found.append(x)
        x = self.join(torch.cat(found, 1))
        spread = (x.var(2, keepdim=True, unbiased=False) + 1e-4).sqrt()
        around = torch.cat([x, x.mean(2, keepdim=True).expand_as(x), spread.expand_as(x)], 1)
        weight = self.weigh(around)
        mean = (weight * x).sum(2)
        deviation = ((weight * x.square()).sum(2) - mean.square()).clamp(min=1e-4).sqrt()
        result: Tensor = self.last(torch.cat([mean, deviation], 1))
        return result


class _ChannelNorm(nn.Module):
    """A layer norm over the channels of a picture."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(1, keepdim=True)
        normal = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
        return normal * self.weight[:, None, None] + self.bias[:, None, None]


class _NafBlock(nn.Module):
    """Gates that are products of halves, and channels weighed by their means; no activation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(_ChannelNorm(width) for _ in range(2))
        self.enter = nn.Conv2d(width, 2 * width, 1)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.weigh = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1))
        self.leave, self.wide = nn.Conv2d(width, width, 1), nn.Conv2d(width, 2 * width, 1)
        self.narrow = nn.Conv2d(width, width, 1)
        self.scales = nn.ParameterList(torch.full((1, width, 1, 1), 0.5) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.depthwise(self.enter(self.norms[0](x))).chunk(2, 1)
        y = a * b
        x = x + self.leave(y * self.weigh(y)) * self.scales[0]
        a, b = self.wide(self.norms[1](x)).chunk(2, 1)
        return x + self.narrow(a * b) * self.scales[1]


class NafNet(nn.Module):
    """A restorer of pictures, twice the size: strided products down, shuffled pixels up."""

    def __init__(self, width: int = 32, depths: tuple[int, ...] = (1, 1, 2)) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        widths = [width << i for i in range(len(depths))]
        self.encoders = nn.ModuleList(
            nn.Sequential(*(_NafBlock(w) for _ in range(d)))
            for w, d in zip(widths, depths, strict=True)
        )
        self.downs = nn.ModuleList(nn.Conv2d(w, 2 * w, 2, 2) for w in widths)
        self.middle = _NafBlock(2 * widths[-1])
        self.ups = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * w, 4 * w, 1, bias=False), nn.PixelShuffle(2))
            for w in reversed(widths)
        )
        self.decoders = nn.ModuleList(_NafBlock(w) for w in reversed(widths))
        self.last = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, picture: Tensor) -> Tensor:
        x = self.first(picture)
        levels = []
        for encoder, down in zip(self.encoders, self.downs, strict=True):
            levels.append(encoder(x))
            x = down(levels[-1])
        x = self.middle(x)
        for up, decoder in zip(self.ups, self.decoders, strict=True):
            x = decoder(up(x) + levels.pop())
        larger = functional.interpolate(picture, scale_factor=2.0, mode="bilinear")
        result: Tensor = self.last(x) + larger
        return result


class Crnn(nn.Module):
    """Reads a line of text: convolutions, two bidirectional LSTMs, scores of characters."""

    def __init__(self, width: int = 256, characters: int = 97) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 1
        for after, pool in ((64, (2, 2)), (128, (2, 2)), (256, (2, 1)), (512, (2, 1))):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
                       nn.MaxPool2d(pool)]  # fmt: skip
            before = after
        self.convolutions = nn.Sequential(*layers, nn.Conv2d(512, 512, (2, 1)), nn.ReLU())
        self.recurrent = nn.LSTM(512, width, 2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2 * width, characters)

    def forward(self, line: Tensor) -> Tensor:
        columns = self.convolutions(line).squeeze(2).transpose(1, 2)
        return self.last(self.recurrent(columns)[0]).log_softmax(-1)


class _Step(nn.Module):
    """A decoder's layer for one token: eight heads of queries on two of kept keys and values."""

    def __init__(self, width: int, heads: int, kept_heads: int) -> None:
        super().__init__()
        self.heads, self.kept_heads, self.size = heads, kept_heads, width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.enter = nn.Linear(width, (heads + 2 * kept_heads) * self.size, bias=False)
        self.leave = nn.Linear(width, width, bias=False)
        self.wide = nn.Linear(width, 6 * width, bias=False)
        self.narrow = nn.Linear(3 * width, width, bias=False)

    def _turned(self, x: Tensor, turn: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return x * turn.cos() + torch.cat([-high, low], -1) * turn.sin()

    def forward(
        self, x: Tensor, turn: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        parts = self.enter(self.norms[0](x)).unflatten(-1, (-1, self.size)).transpose(1, 2)
        query, key, value = parts.split([self.heads, self.kept_heads, self.kept_heads], 1)
        query, key = self._turned(query, turn), self._turned(key, turn)
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        mixed = functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
        x = x + self.leave(mixed.transpose(1, 2).flatten(2))
        gate, up = self.wide(self.norms[1](x)).chunk(2, -1)
        return x + self.narrow(functional.silu(gate) * up), key, value


class DecoderStep(nn.Module):
    """One token of a decoder with grouped queries, its keys and values of earlier ones given."""

    def __init__(self, width: int = 512, depth: int = 4, words: int = 4000) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.layers = nn.ModuleList(_Step(width, 8, 2) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        self.register_buffer("rates", 10000.0 ** -(torch.arange(32) / 32).repeat(2))

    def forward(self, ids: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        x, turn = self.table(ids), kept.shape[4] * self.rates
        new = []
        for layer, (keys, values) in zip(
            self.layers, (pair.unbind(1) for pair in kept.unbind(1)), strict=True
        ):
            x, key, value = layer(x, turn, keys, values)
            new.append(torch.stack([key, value], 1))
        return self.head(self.norm(x)), torch.stack(new, 1)


NETWORKS = [
    Network("plain/group_unet", SEGMENTATION, GroupUnet, (image(1, 3, 192, 192),)),
    Network("plain/x3d", VOLUME, X3d, (image(1, 3, 13, 160, 160),)),
    Network("plain/ecapa_tdnn", SPEECH, EcapaTdnn, (image(1, 80, 300),)),
    Network("plain/nafnet", SUPER_RESOLUTION, NafNet, (image(1, 3, 128, 128),)),
    Network("plain/crnn", RECURRENT, Crnn, (image(1, 1, 32, 160),)),
    Network(
        "plain/decoder_step", DECODER, DecoderStep,
        (tokens(4000, 1, 1), noise(1, 4, 2, 2, 255, 64)),
    ),
]  # fmt: skip
