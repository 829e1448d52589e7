"""Fields, codes, points and flows in plain PyTorch: what looks up, samples, sorts and iterates."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.network import GENERATOR, MULTI, RECOMMENDATION, Network, image, noise, tokens


class Kan(nn.Module):
    """Kolmogorov-Arnold layers: a cubic B-spline on every edge, by recursion over its order."""

    def __init__(self, sizes: tuple[int, ...] = (32, 64, 64, 10), pieces: int = 5) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2.2, 2.2, pieces + 7))
        self.bases = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.splines = nn.ModuleList(
            nn.Linear(a * (pieces + 3), b, bias=False) for a, b in itertools.pairwise(sizes)
        )

    def _bases(self, x: Tensor) -> Tensor:
        x, knots = x[..., None], self.knots
        found = ((x >= knots[:-1]) & (x < knots[1:])).to(x.dtype)
        for order in range(1, 4):
            left = (x - knots[: -order - 1]) / (knots[order:-1] - knots[: -order - 1])
            right = (knots[order + 1 :] - x) / (knots[order + 1 :] - knots[1:-order])
            found = left * found[..., :-1] + right * found[..., 1:]
        return found.flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        for base, spline in zip(self.bases, self.splines, strict=True):
            x = base(functional.silu(x)) + spline(self._bases(x))
        return x


class Siren(nn.Module):
    """A picture as a function: sines of dense layers at every pixel."""

    def __init__(self, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        sizes = [2] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        for i, layer in enumerate(self.layers):
            bound = 0.5 if i == 0 else (6 / width) ** 0.5 / 30
            nn.init.uniform_(layer.weight, -bound, bound)
        self.last = nn.Linear(width, 3)

    def forward(self, places: Tensor) -> Tensor:
        x = places
        for layer in self.layers:
            x = torch.sin(30.0 * layer(x))
        result: Tensor = self.last(x)
        return result


class HashGrid(nn.Module):
    """Instant NGP: corners of cells on several scales, hashed into tables, mixed linearly."""

    def __init__(self, levels: int = 8, rows: int = 4096, width: int = 64) -> None:
        super().__init__()
        self.rows = rows
        self.tables = nn.Parameter(torch.randn(levels * rows, 2) * 0.1)
        scales = (16 * 1.5 ** torch.arange(levels)).floor()
        self.register_buffer("scales", scales)
        corners = torch.cartesian_prod(*[torch.arange(2)] * 3)
        self.register_buffer("corners", corners)
        self.register_buffer("primes", torch.tensor([1, 2654435761, 805459861]))
        self.register_buffer("offsets", torch.arange(levels)[:, None] * rows)
        self.layers = nn.Sequential(
            nn.Linear(2 * levels, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 4),
        )  # fmt: skip

    def forward(self, places: Tensor) -> Tensor:
        scaled = places.sigmoid()[:, None] * self.scales[:, None]
        cell = scaled.floor()
        within = (scaled - cell)[:, :, None]
        index = (cell.long()[:, :, None] + self.corners) * self.primes
        hashed = (index[..., 0] ^ index[..., 1] ^ index[..., 2]) % self.rows + self.offsets
        weight = torch.where(self.corners == 1, within, 1 - within).prod(-1)
        code = (self.tables[hashed] * weight[..., None]).sum(2).flatten(1)
        result: Tensor = self.layers(code)
        return result


class VqVae(nn.Module):
    """An encoder, the nearest of a book of codes for each pixel, a decoder."""

    def __init__(self, width: int = 64, codes: int = 256) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width // 2, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(width // 2, width, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 1),
        )  # fmt: skip
        self.book = nn.Embedding(codes, width)
        self.decoder = nn.Sequential(
            nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(width // 2, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encoder(x).permute(0, 2, 3, 1)
        rows, book = x.reshape(-1, x.shape[-1]), self.book.weight
        distance = rows.square().sum(1, keepdim=True) + book.square().sum(1) - 2 * rows @ book.T
        chosen = distance.argmin(1)
        codes = self.book(chosen).view(x.shape).permute(0, 3, 1, 2)
        return self.decoder(codes), chosen.view(x.shape[:3])


class Capsules(nn.Module):
    """Vectors that agree are routed together, in three rounds."""

    def __init__(self, kinds: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.classes = classes
        self.first = nn.Conv2d(1, 64, 9)
        self.second = nn.Conv2d(64, kinds * 8, 9, 2)
        self.weight = nn.Parameter(torch.randn(kinds * 36, classes, 16, 8) * 0.1)

    @staticmethod
    def _squashed(x: Tensor) -> Tensor:
        squares = x.square().sum(-1, keepdim=True)
        return x * squares / ((1 + squares) * (squares + 1e-8).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(functional.relu(self.first(x)))
        x = self._squashed(x.unflatten(1, (-1, 8)).permute(0, 1, 3, 4, 2).flatten(1, 3))
        votes = torch.einsum("ncij,bnj->bnci", self.weight, x)
        logits = torch.zeros_like(votes[..., 0])
        found = votes[:, 0]
        for _ in range(3):
            found = self._squashed((logits.softmax(2)[..., None] * votes).sum(1))
            logits = logits + (votes * found[:, None]).sum(-1)
        return found.norm(dim=-1)


class Deformable(nn.Module):
    """Convolutions whose taps are moved, modulated and sampled between pixels."""

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, 2, 1)
        self.offsets = nn.ModuleList(nn.Conv2d(width, 27, 3, 1, 1) for _ in range(depth))
        self.mixes = nn.ModuleList(nn.Conv2d(width * 9, width, 1) for _ in range(depth))
        self.last = nn.Linear(width, 10)
        ahead = torch.cartesian_prod(*[torch.arange(-1.0, 2.0)] * 2)
        self.register_buffer("taps", ahead.flip(1)[:, None, None])

    def _sampled(self, x: Tensor, moved: Tensor) -> Tensor:
        batch, width, height, length = x.shape
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(length), indexing="ij")
        grid = torch.stack([columns, rows], -1).to(x.dtype) + self.taps
        shift, mask = moved.unflatten(1, (9, 3)).permute(0, 1, 3, 4, 2).split([2, 1], -1)
        places = 2 * (grid + shift) / torch.tensor([length - 1.0, height - 1.0]).to(x.dtype) - 1
        found = functional.grid_sample(
            x, places.reshape(batch, 9 * height, length, 2), align_corners=True
        )
        found = found.view(batch, width, 9, height, length) * mask.sigmoid()[:, None, ..., 0]
        return found.flatten(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.enter(x))
        for offset, mix in zip(self.offsets, self.mixes, strict=True):
            x = x + functional.relu(mix(self._sampled(x, offset(x))))
        result: Tensor = self.last(x.mean((2, 3)))
        return result


class FourierOperator(nn.Module):
    """A neural operator: low frequencies of two axes mixed by complex weights."""

    def __init__(self, width: int = 32, modes: int = 12, depth: int = 3) -> None:
        super().__init__()
        self.modes = modes
        self.enter, self.leave = nn.Conv2d(3, width, 1), nn.Conv2d(width, 1, 1)
        self.past = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))
        self.weights = nn.ParameterList(
            torch.randn(2, width, width, modes, modes, 2) / width for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        x, modes = self.enter(x), self.modes
        for weight, past in zip(self.weights, self.past, strict=True):
            low, high = torch.view_as_complex(weight)
            spectrum = torch.fft.rfft2(x, norm="ortho")
            mixed = torch.zeros_like(spectrum)
            equation = "bixy,ioxy->boxy"
            mixed[:, :, :modes, :modes] = torch.einsum(
                equation, spectrum[:, :, :modes, :modes], low
            )
            mixed[:, :, -modes:, :modes] = torch.einsum(
                equation, spectrum[:, :, -modes:, :modes], high
            )
            x = functional.gelu(torch.fft.irfft2(mixed, s=x.shape[-2:], norm="ortho") + past(x))
        result: Tensor = self.leave(x)
        return result


class Perceiver(nn.Module):
    """Perceiver IO: latents look at many inputs, then among themselves, then queries at them."""

    def __init__(self, width: int = 128, latents: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.enter = nn.Linear(3, width)
        self.places = nn.Parameter(torch.randn(1024, width) * 0.1)
        self.latents = nn.Parameter(torch.randn(1, latents, width) * 0.1)
        self.queries = nn.Parameter(torch.randn(1, 50, width) * 0.1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.look = nn.MultiheadAttention(width, 1, batch_first=True)
        self.think = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.answer = nn.MultiheadAttention(width, 1, batch_first=True)
        self.last = nn.Linear(width, 20)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.norms[0](self.enter(pixels) + self.places)
        hidden = self.latents.expand(len(x), -1, -1)
        hidden = hidden + self.look(self.norms[1](hidden), x, x, need_weights=False)[0]
        for layer in self.think:
            hidden = layer(hidden)
        hidden, queries = self.norms[2](hidden), self.queries.expand(len(x), -1, -1)
        result: Tensor = self.last(self.answer(queries, hidden, hidden, need_weights=False)[0])
        return result


class EdgeAttention(nn.Module):
    """Graph attention over a list of edges: a softmax by scattered maxima and sums."""

    def __init__(self, width: int = 64, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.enter, self.leave = nn.Linear(16, width), nn.Linear(width, 7)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.scores = nn.ParameterList(
            torch.randn(2, heads, width // heads) * 0.3 for _ in range(depth)
        )

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        x = self.enter(nodes)
        rows = target[:, None].expand(-1, self.heads)
        for layer, score in zip(self.layers, self.scores, strict=True):
            h = layer(x).unflatten(-1, (self.heads, -1))
            said, heard = (h * score[0]).sum(-1), (h * score[1]).sum(-1)
            logit = functional.leaky_relu(said[source] + heard[target], 0.2)
            most = torch.full_like(said, -1e9).scatter_reduce(0, rows, logit, "amax")
            weight = (logit - most[target]).exp()
            total = torch.zeros_like(said).scatter_add(0, rows, weight)
            weight = weight / (total[target] + 1e-16)
            sent = h[source] * weight[..., None]
            x = x + functional.elu(torch.zeros_like(h).index_add(0, target, sent).flatten(1))
        return self.leave(x).log_softmax(-1)


class GroupedPoints(nn.Module):
    """PointNet++: neighbours of chosen points, by distance, and the largest of what they say."""

    def __init__(self, chosen: tuple[int, int] = (128, 32), near: int = 16) -> None:
        super().__init__()
        self.chosen, self.near = chosen, near
        sizes = ((3, 32, 64), (67, 64, 128))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, c), nn.ReLU())
            for a, b, c in sizes
        )
        self.last = nn.Sequential(nn.Linear(131, 256), nn.ReLU(), nn.Linear(256, 40))

    def forward(self, points: Tensor) -> Tensor:
        features: Tensor | None = None
        for count, layer in zip(self.chosen, self.layers, strict=True):
            centres = points[:, :count]
            index = torch.cdist(centres, points).topk(self.near, largest=False).indices
            rows = index.flatten(1)[..., None]
            around = points.gather(1, rows.expand(-1, -1, 3)).unflatten(1, (count, -1))
            grouped = around - centres[:, :, None]
            if features is not None:
                said = features.gather(1, rows.expand(-1, -1, features.shape[-1]))
                grouped = torch.cat([grouped, said.unflatten(1, (count, -1))], -1)
            features, points = layer(grouped).amax(2), centres
        whole = torch.cat([points, features], -1) if features is not None else points
        result: Tensor = self.last(whole).amax(1)
        return result


class Flow(nn.Module):
    """Glow: invertible mixtures of channels and coupled halves, with the volume's logarithm."""

    def __init__(self, channels: int = 12, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        mixes = [torch.linalg.qr(torch.randn(channels, channels))[0] for _ in range(depth)]
        self.mixes = nn.ParameterList(mixes)
        self.scales = nn.ParameterList(torch.randn(channels, 1, 1) * 0.1 for _ in range(depth))
        self.nets = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels // 2, width, 3, padding=1), nn.ReLU(),
                nn.Conv2d(width, width, 1), nn.ReLU(),
                nn.Conv2d(width, channels, 3, padding=1),
            )
            for _ in range(depth)
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.pixel_unshuffle(x, 2)
        pixels = x.shape[2] * x.shape[3]
        volume = torch.zeros(x.shape[0], dtype=x.dtype)
        for mix, scale, net in zip(self.mixes, self.scales, self.nets, strict=True):
            x = functional.conv2d(x * scale.exp(), mix[:, :, None, None])
            volume = volume + (scale.sum() + torch.linalg.slogdet(mix)[1]) * pixels
            kept, moved = x.chunk(2, 1)
            shift, gate = net(kept).chunk(2, 1)
            gate = torch.sigmoid(gate + 2)
            x = torch.cat([kept, (moved + shift) * gate], 1)
            volume = volume + gate.log().sum((1, 2, 3))
        return x, volume


NETWORKS = [
    Network("plain/kan", RECOMMENDATION, Kan, (noise(16, 32),)),
    Network("plain/siren", MULTI, Siren, (noise(1024, 2),)),
    Network("plain/hash_grid", MULTI, HashGrid, (noise(1024, 3),)),
    Network("plain/vq_vae", GENERATOR, VqVae, (image(1, 3, 64, 64),)),
    Network("plain/capsules", MULTI, Capsules, (image(1, 1, 28, 28),)),
    Network("plain/deformable", MULTI, Deformable, (image(1, 3, 64, 64),)),
    Network("plain/fourier_operator", MULTI, FourierOperator, (image(1, 3, 64, 64),)),
    Network("plain/perceiver", MULTI, Perceiver, (noise(1, 1024, 3),)),
    Network(
        "plain/edge_attention", MULTI, EdgeAttention,
        (noise(256, 16), tokens(256, 1024), tokens(256, 1024)),
    ),
    Network("plain/grouped_points", MULTI, GroupedPoints, (noise(1, 512, 3),)),
    Network("plain/glow", GENERATOR, Flow, (image(1, 3, 32, 32),)),
]  # fmt: skip
