"""Sequences in plain PyTorch, by other means than attention and recurrent layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.network import MIXER, RECURRENT, SPEECH, Network, noise, tokens


class S4d(nn.Module):
    """Diagonal state spaces: a kernel of complex exponentials, convolved by Fourier transforms."""

    def __init__(self, width: int = 64, states: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(8, width), nn.Linear(width, 10)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.gates = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(depth))
        rates = torch.arange(states).expand(depth, width, states)
        self.decay = nn.Parameter(torch.full((depth, width, states), 0.5).log())
        self.frequency = nn.Parameter(rates * torch.pi)
        self.out = nn.Parameter(torch.randn(depth, width, states, 2) * 0.5)
        self.step = nn.Parameter(torch.rand(depth, width) * 3 - 5)
        self.skip = nn.Parameter(torch.randn(depth, width))

    def _kernel(self, i: int, length: int) -> Tensor:
        rate = torch.complex(-self.decay[i].exp(), self.frequency[i])
        moved = rate * self.step[i].exp()[:, None]
        weight = torch.view_as_complex(self.out[i]) * (moved.exp() - 1.0) / rate
        times = torch.arange(length, device=moved.device)
        powers = torch.exp(moved[..., None] * times)
        return 2 * (weight[..., None] * powers).sum(1).real

    def forward(self, series: Tensor) -> Tensor:
        x = self.enter(series)
        length = x.shape[1]
        for i, (norm, gate) in enumerate(zip(self.norms, self.gates, strict=True)):
            y = norm(x).transpose(1, 2)
            spectrum = torch.fft.rfft(self._kernel(i, length), n=2 * length)
            mixed = torch.fft.irfft(torch.fft.rfft(y, n=2 * length) * spectrum, n=2 * length)
            y = mixed[..., :length] + y * self.skip[i][:, None]
            x = x + functional.glu(gate(functional.gelu(y).transpose(1, 2)), -1)
        result: Tensor = self.leave(x.mean(1))
        return result


class Rwkv(nn.Module):
    """Time mixing of RWKV 4: sums with decays, kept in range by a running maximum."""

    def __init__(self, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(1000, width), nn.Linear(width, 1000, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.mixes = nn.ParameterList(torch.rand(5, width) for _ in range(depth))
        self.rates = nn.ParameterList(torch.randn(2, width) for _ in range(depth))
        self.times = nn.ModuleList(
            nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
            for _ in range(depth)
        )
        self.channels = nn.ModuleList(
            nn.ModuleList([
                nn.Linear(width, 4 * width, bias=False),
                nn.Linear(4 * width, width, bias=False),
                nn.Linear(width, width, bias=False),
            ])
            for _ in range(depth)
        )  # fmt: skip

    @staticmethod
    def _weighted(key: Tensor, value: Tensor, decay: Tensor, first: Tensor) -> Tensor:
        above = below = torch.zeros_like(key[:, 0])
        most = torch.full_like(above, -1e38)
        found = []
        for k, v in zip(key.unbind(1), value.unbind(1), strict=True):
            top = torch.maximum(most, first + k)
            old, new = (most - top).exp(), (first + k - top).exp()
            found.append((old * above + new * v) / (old * below + new))
            top = torch.maximum(most + decay, k)
            old, new = (most + decay - top).exp(), (k - top).exp()
            above, below, most = old * above + new * v, old * below + new, top
        return torch.stack(found, 1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for i, (time, channel) in enumerate(zip(self.times, self.channels, strict=True)):
            mixes, (rate, first) = self.mixes[i], self.rates[i]
            y = self.norms[2 * i](x)
            before = functional.pad(y, (0, 0, 1, -1))
            key, value, gate = (
                layer(y * mix + before * (1 - mix))
                for layer, mix in zip(list(time)[:3], mixes[:3], strict=True)
            )
            x = x + time[3](gate.sigmoid() * self._weighted(key, value, -rate.exp(), first))
            y = self.norms[2 * i + 1](x)
            before = functional.pad(y, (0, 0, 1, -1))
            wide = functional.relu(channel[0](y * mixes[3] + before * (1 - mixes[3]))).square()
            gate = channel[2](y * mixes[4] + before * (1 - mixes[4])).sigmoid()
            x = x + gate * channel[1](wide)
        result: Tensor = self.head(x)
        return result


class MinGru(nn.Module):
    """Gates that do not ask the state: a scan in logarithms, all steps at once."""

    def __init__(self, width: int = 128, depth: int = 3) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(256, width), nn.Linear(width, 256)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(depth))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            hidden, gate = layer(norm(x)).chunk(2, -1)
            kept = -functional.softplus(gate)
            new = -functional.softplus(-gate)
            values = torch.where(
                hidden >= 0, (functional.relu(hidden) + 0.5).log(), -functional.softplus(-hidden)
            )
            faded = kept.cumsum(1)
            x = x + (faded + torch.logcumsumexp(new + values - faded, 1)).exp()
        result: Tensor = self.head(x)
        return result


class Retention(nn.Module):
    """RetNet in parallel form: products of queries and keys, faded by distance, no softmax."""

    def __init__(self, width: int = 128, heads: int = 4, depth: int = 3, length: int = 128) -> None:
        super().__init__()
        self.heads = heads
        self.table, self.head = nn.Embedding(1000, width), nn.Linear(width, 1000)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.enters = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.leaves = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.groups = nn.ModuleList(nn.GroupNorm(heads, width) for _ in range(depth))
        self.wide = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(depth))
        self.narrow = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        rates = 1 - 2.0 ** (-5 - torch.arange(heads))
        distance = torch.arange(length)[:, None] - torch.arange(length)
        faded = rates[:, None, None] ** distance.clamp(min=0)
        self.register_buffer("decay", torch.where(distance >= 0, faded, 0.0))
        angle = 10000.0 ** -torch.linspace(0, 1, width // heads // 2)
        turns = torch.arange(length)[:, None] * angle.repeat_interleave(2)
        self.register_buffer("sine", turns.sin())
        self.register_buffer("cosine", turns.cos())

    def _turned(self, x: Tensor) -> Tensor:
        pairs = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        return x * self.cosine + pairs * self.sine

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        batch, length, width = x.shape
        for i, (enter, leave) in enumerate(zip(self.enters, self.leaves, strict=True)):
            parts = enter(self.norms[2 * i](x)).chunk(4, -1)
            q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts[:3])
            scores = self._turned(q) @ self._turned(k).transpose(-1, -2) * q.shape[-1] ** -0.5
            mixed = (scores * self.decay @ v).transpose(1, 2).reshape(batch * length, width)
            mixed = self.groups[i](mixed).view(batch, length, width)
            x = x + leave(functional.silu(parts[3]) * mixed)
            x = x + self.narrow[i](functional.gelu(self.wide[i](self.norms[2 * i + 1](x))))
        result: Tensor = self.head(x)
        return result


class Spiking(nn.Module):
    """Leaky neurons that fire above a threshold and start anew, over a few steps of time."""

    def __init__(self, width: int = 256, steps: int = 12) -> None:
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList([
            nn.Linear(700, width), nn.Linear(width, width), nn.Linear(width, 20),
        ])  # fmt: skip
        self.leaks = nn.Parameter(torch.full((3,), 0.9))

    def forward(self, events: Tensor) -> Tensor:
        states = [torch.zeros(events.shape[0], layer.out_features) for layer in self.layers]
        total = states[-1]
        for i in range(self.steps):
            x = events[:, i]
            for j, layer in enumerate(self.layers):
                states[j] = states[j] * self.leaks[j] + layer(x)
                x = (states[j] > 0.5).to(x.dtype)
                if j < 2:
                    states[j] = states[j] - x * 0.5
            total = total + states[-1]
        return total / self.steps


class CrfTagger(nn.Module):
    """Scores of tags from convolutions; marginals by a forward and a backward pass of sums."""

    def __init__(self, width: int = 96, tags: int = 17) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, width)
        self.near = nn.Conv1d(width, width, 3, padding=1)
        self.far = nn.Conv1d(width, width, 3, padding=2, dilation=2)
        self.score = nn.Linear(width, tags)
        self.moves = nn.Parameter(torch.randn(tags, tags) * 0.5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids).transpose(1, 2)
        x = functional.relu(self.far(functional.relu(self.near(x))))
        scores = self.score(x.transpose(1, 2))
        steps = scores.unbind(1)
        ahead, behind = [steps[0]], [torch.zeros_like(steps[0])]
        for step in steps[1:]:
            ahead.append(torch.logsumexp(ahead[-1][:, :, None] + self.moves, 1) + step)
        for step in reversed(steps[1:]):
            behind.append(torch.logsumexp((behind[-1] + step)[:, None] + self.moves, 2))
        both = torch.stack(ahead, 1) + torch.stack(behind[::-1], 1)
        return both.softmax(-1)


class SincNet(nn.Module):
    """Band filters computed from their edges, over raw sound."""

    def __init__(self, filters: int = 40, size: int = 101, width: int = 64) -> None:
        super().__init__()
        self.low = nn.Parameter(torch.rand(filters) * 0.2 + 0.01)
        self.band = nn.Parameter(torch.rand(filters) * 0.1 + 0.01)
        places = torch.arange(size) - (size - 1) / 2
        self.register_buffer("places", places * 2 * torch.pi)
        self.register_buffer("window", 0.54 + 0.46 * torch.cos(2 * torch.pi * places / size))
        self.norm = nn.GroupNorm(1, filters)
        self.convolutions = nn.Sequential(
            nn.Conv1d(filters, width, 5), nn.LeakyReLU(0.2), nn.MaxPool1d(3),
            nn.Conv1d(width, width, 5), nn.LeakyReLU(0.2), nn.MaxPool1d(3),
        )  # fmt: skip
        self.last = nn.Linear(width, 30)

    def forward(self, sound: Tensor) -> Tensor:
        low = self.low.abs()
        high = (low + self.band.abs()).clamp(max=0.5)
        bands = [edge[:, None] * torch.sinc(edge[:, None] * self.places) for edge in (high, low)]
        filters = 2 * (bands[0] - bands[1]) * self.window
        x = functional.conv1d(sound, filters[:, None], stride=2).abs()
        x = self.convolutions(functional.max_pool1d(self.norm(x), 3))
        return self.last(x.mean(-1)).log_softmax(-1)


NETWORKS = [
    Network("plain/s4d", RECURRENT, S4d, (noise(1, 256, 8),)),
    Network("plain/rwkv", RECURRENT, Rwkv, (tokens(1000, 1, 16),)),
    Network("plain/min_gru", RECURRENT, MinGru, (tokens(256, 1, 256),)),
    Network("plain/retention", RECURRENT, Retention, (tokens(1000, 1, 128),)),
    Network("plain/spiking", RECURRENT, Spiking, (noise(4, 12, 700),)),
    Network("plain/crf_tagger", MIXER, CrfTagger, (tokens(1000, 4, 24),)),
    Network("plain/sincnet", SPEECH, SincNet, (noise(1, 1, 3200),)),
]
