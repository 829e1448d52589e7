"""Sequences in plain PyTorch: sound, text and series, convolved or recurrent."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.network import MIXER, RECURRENT, SPEECH, Network, image, noise, tokens


class Tcn(nn.Module):
    """Causal dilated convolutions in residual blocks."""

    def __init__(self, width: int = 64, depth: int = 5) -> None:
        super().__init__()
        self.first = nn.Conv1d(16, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**i) for i in range(depth))
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for index, layer in enumerate(self.layers):
            x = x + functional.relu(layer(functional.pad(x, (2 ** (index + 1), 0))))
        result: Tensor = self.last(x[:, :, -1])
        return result


class WaveNet(nn.Module):
    """Gated dilated convolutions with skips."""

    def __init__(self, width: int = 32, depth: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, dilation=2**i, padding=2**i) for i in range(depth)
        )
        self.joins = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(depth))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        skips = torch.zeros_like(x)
        for gate, join in zip(self.gates, self.joins, strict=True):
            value, weight = gate(x).chunk(2, 1)
            residual, skip = join(torch.tanh(value) * torch.sigmoid(weight)).chunk(2, 1)
            x, skips = x + residual, skips + skip
        result: Tensor = self.last(skips)
        return result


class QuartzNet(nn.Sequential):
    """Depthwise separable convolutions over a spectrogram."""

    def __init__(self, width: int = 128) -> None:
        layers: list[nn.Module] = [
            nn.Conv1d(64, width, 33, 2, 16),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        ]
        for kernel in (33, 39, 51):
            layers += [
                nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width),
                nn.Conv1d(width, width, 1), nn.BatchNorm1d(width), nn.ReLU(),
            ]  # fmt: skip
        super().__init__(*layers, nn.Conv1d(width, 29, 1), nn.LogSoftmax(1))


class ConvTasNet(nn.Module):
    """Separates two speakers: learned filters, global norms, masks, a transposed convolution."""

    def __init__(self, width: int = 128, depth: int = 6) -> None:
        super().__init__()
        self.encode = nn.Conv1d(1, width, 16, 8, bias=False)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, width, 1), nn.PReLU(), nn.GroupNorm(1, width),
                nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i, groups=width), nn.PReLU(),
                nn.GroupNorm(1, width), nn.Conv1d(width, width, 1),
            )
            for i in range(depth)
        )  # fmt: skip
        self.masks = nn.Conv1d(width, 2 * width, 1)
        self.decode = nn.ConvTranspose1d(width, 1, 16, 8, bias=False)

    def forward(self, sound: Tensor) -> Tensor:
        code = functional.relu(self.encode(sound))
        x = code
        for block in self.blocks:
            x = x + block(x)
        masks = torch.sigmoid(self.masks(x)).view(sound.shape[0] * 2, -1, x.shape[-1])
        speakers = masks * code.repeat_interleave(2, 0)
        result: Tensor = self.decode(speakers)
        return result


class HifiGan(nn.Module):
    """A vocoder: transposed convolutions, and blocks of dilated ones whose means are taken."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(width >> i, width >> (i + 1), 8, 4, 2) for i in range(3)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.Conv1d(width >> (i + 1), width >> (i + 1), k, padding=d * (k // 2), dilation=d)
                for k, d in ((3, 1), (7, 3), (11, 5))
            )
            for i in range(3)
        )
        self.last = nn.Conv1d(width >> 3, 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for up, block in zip(self.ups, self.blocks, strict=True):
            x = up(functional.leaky_relu(x, 0.1))
            x = torch.stack([x + c(functional.leaky_relu(x, 0.1)) for c in block]).mean(0)
        return torch.tanh(self.last(functional.leaky_relu(x)))


class TextCnn(nn.Module):
    """Words, convolutions of several widths, the largest of each over time."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.filters = nn.ModuleList(nn.Conv1d(width, 64, k) for k in (3, 4, 5))
        self.last = nn.Linear(192, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids).transpose(1, 2)
        found = torch.cat([functional.relu(f(x)).amax(2) for f in self.filters], 1)
        result: Tensor = self.last(found)
        return result


class LstmModel(nn.Module):
    """A language model of two LSTM layers."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.network = nn.LSTM(width, width, 2, batch_first=True)
        self.last = nn.Linear(width, 1000)

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.last(self.network(self.words(ids))[0])
        return result


class BidirectionalTagger(nn.Module):
    """A bidirectional LSTM that labels every word."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.network = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2 * width, 9)

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.last(self.network(self.words(ids))[0])
        return result


class GruForecast(nn.Module):
    """A GRU over a series; its last state predicts."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.network = nn.GRU(8, width, batch_first=True)
        self.last = nn.Linear(width, 4)

    def forward(self, series: Tensor) -> Tensor:
        result: Tensor = self.last(self.network(series)[1][-1])
        return result


class DeepSpeech(nn.Module):
    """Convolutions over a spectrogram, then recurrent layers."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(16), nn.Hardtanh(0, 20)
        )
        self.network = nn.GRU(16 * 20, width, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2 * width, 29)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = self.conv(spectrogram).permute(0, 2, 1, 3).flatten(2)
        return self.last(self.network(x)[0]).log_softmax(-1)


class ConvLstm(nn.Module):
    """A convolutional LSTM over a few frames."""

    def __init__(self, width: int = 16, frames: int = 4) -> None:
        super().__init__()
        self.width, self.frames = width, frames
        self.gates = nn.Conv2d(1 + width, 4 * width, 3, padding=1)
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, frames: Tensor) -> Tensor:
        batch, _, _, height, across = frames.shape
        hidden = frames.new_zeros(batch, self.width, height, across)
        cell = torch.zeros_like(hidden)
        for time in range(self.frames):
            mixed = self.gates(torch.cat([frames[:, :, time], hidden], 1))
            into, forget, out, value = mixed.chunk(4, 1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(value)
            hidden = torch.sigmoid(out) * torch.tanh(cell)
        result: Tensor = self.last(hidden)
        return result


class NBeats(nn.Module):
    """Stacks of dense layers that take from a series what they explain."""

    def __init__(self, before: int = 96, after: int = 24, blocks: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(before, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                          nn.Linear(128, before + after))
            for _ in range(blocks)
        )  # fmt: skip
        self.before, self.after = before, after

    def forward(self, series: Tensor) -> Tensor:
        forecast = series.new_zeros(series.shape[0], self.after)
        for block in self.blocks:
            back, ahead = block(series).split([self.before, self.after], -1)
            series, forecast = series - back, forecast + ahead
        return forecast


NETWORKS = [
    Network("plain/tcn", SPEECH, Tcn, (image(1, 16, 512),)),
    Network("plain/wavenet", SPEECH, WaveNet, (image(1, 1, 2048),)),
    Network("plain/quartznet", SPEECH, QuartzNet, (image(1, 64, 400),)),
    Network("plain/conv_tasnet", SPEECH, ConvTasNet, (noise(1, 1, 8000),)),
    Network("plain/hifigan", SPEECH, HifiGan, (image(1, 80, 64),)),
    Network("plain/text_cnn", SPEECH, TextCnn, (tokens(1000, 1, 64),)),
    Network("plain/lstm", RECURRENT, LstmModel, (tokens(1000, 1, 32),)),
    Network("plain/bilstm_tagger", RECURRENT, BidirectionalTagger, (tokens(1000, 1, 32),)),
    Network("plain/gru_forecast", RECURRENT, GruForecast, (noise(1, 48, 8),)),
    Network("plain/deepspeech", RECURRENT, DeepSpeech, (image(1, 1, 64, 40),)),
    Network("plain/conv_lstm", RECURRENT, ConvLstm, (image(1, 1, 4, 32, 32),)),
    Network("plain/nbeats", MIXER, NBeats, (noise(4, 96),)),
]
