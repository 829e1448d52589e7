"""Tables, points and graphs in plain PyTorch: recommendation and what else is fed by indices."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.network import MULTI, RECOMMENDATION, Network, noise, tokens, unit

_FIELDS = 8


def _dense(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    """Bags of embeddings and dense features, all pairs multiplied."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(1000, width, mode="sum") for _ in range(_FIELDS))
        self.bottom, self.top = _dense(13, 64, width), _dense(width + 36, 64, 1)
        pairs = torch.tril_indices(_FIELDS + 1, _FIELDS + 1, -1)
        self.register_buffer("rows", pairs[0])
        self.register_buffer("columns", pairs[1])

    def forward(self, features: Tensor, ids: Tensor) -> Tensor:
        x = self.bottom(features)
        vectors = [x, *(bag(ids[:, i]) for i, bag in enumerate(self.bags))]
        stacked = torch.stack(vectors, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))[:, self.rows, self.columns]
        return torch.sigmoid(self.top(torch.cat([x, products], 1)))


class DeepFm(nn.Module):
    """A factorization machine beside a dense network."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(8000, 1), nn.Embedding(8000, width)
        self.deep = _dense(_FIELDS * width, 64, 1)

    def forward(self, ids: Tensor) -> Tensor:
        vectors = self.second(ids)
        pairs = (vectors.sum(1).pow(2) - vectors.pow(2).sum(1)).sum(1, keepdim=True) / 2
        return torch.sigmoid(self.first(ids).sum(1) + pairs + self.deep(vectors.flatten(1)))


class TwoTowers(nn.Module):
    """Users and items; means of bags, normalized, all scores."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.users = nn.EmbeddingBag(1000, width, mode="mean")
        self.items = nn.Embedding(1000, width)
        self.user, self.item = _dense(width, 128, width), _dense(width, 128, width)

    def forward(self, history: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
        user = functional.normalize(self.user(self.users(history)), dim=-1)
        item = functional.normalize(self.item(self.items(candidates)), dim=-1)
        return torch.topk(user @ item.T, 10).values, user


class Din(nn.Module):
    """Attention of a candidate over a history, with parametric gates."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.items = nn.Embedding(1000, width)
        self.weigh = nn.Sequential(nn.Linear(4 * width, 36), nn.PReLU(), nn.Linear(36, 1))
        self.last = _dense(2 * width, 64, 1)

    def forward(self, history: Tensor, candidate: Tensor) -> Tensor:
        past, wanted = self.items(history), self.items(candidate)
        each = wanted[:, None].expand_as(past)
        weights = self.weigh(torch.cat([each, past, each - past, each * past], -1))
        taken = (weights.softmax(1) * past).sum(1)
        return torch.sigmoid(self.last(torch.cat([taken, wanted], -1)))


class Autoint(nn.Module):
    """Attention between the fields of a table, numbers and categories alike."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.fields = nn.Embedding(1000, width)
        self.numbers = nn.Parameter(torch.randn(13, width))
        self.layers = nn.ModuleList(
            nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2)
        )
        self.last = nn.Linear((13 + _FIELDS) * width, 1)

    def forward(self, features: Tensor, ids: Tensor) -> Tensor:
        x = torch.cat([features[:, :, None] * self.numbers, self.fields(ids)], 1)
        for layer in self.layers:
            x = functional.relu(x + layer(x, x, x, need_weights=False)[0])
        return torch.sigmoid(self.last(x.flatten(1)))


class PointNet(nn.Module):
    """A network over sets of points: shared dense layers, the largest over the set, a transform."""

    def __init__(self) -> None:
        super().__init__()
        self.pose = nn.Sequential(nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU())
        self.matrix = nn.Linear(64, 9)
        self.points = nn.Sequential(
            nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 256, 1)
        )
        self.classify = _dense(256, 128, 10)

    def forward(self, cloud: Tensor) -> Tensor:
        turn = self.matrix(self.pose(cloud).max(2).values).view(-1, 3, 3)
        turn = turn + torch.eye(3, dtype=cloud.dtype, device=cloud.device)
        result: Tensor = self.classify(self.points(torch.bmm(turn, cloud)).max(2).values)
        return result


class GraphAttention(nn.Module):
    """Attention along the edges of a dense graph."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, width), nn.Linear(width, 7)
        self.left, self.right = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        x = self.first(nodes)
        scores = functional.leaky_relu(self.left(x) + self.right(x).transpose(-1, -2), 0.2)
        scores = scores.masked_fill(edges < 0.5, -1e4)
        result: Tensor = self.second(functional.elu(scores.softmax(-1) @ x))
        return result


class MessagePassing(nn.Module):
    """Messages along listed edges, gathered and scattered."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.enter, self.message = nn.Linear(16, width), _dense(2 * width, 64, width)
        self.update, self.last = nn.GRUCell(width, width), nn.Linear(width, 3)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        x = self.enter(nodes)
        for _ in range(2):
            sent = self.message(torch.cat([x[source], x[target]], -1))
            x = self.update(torch.zeros_like(x).index_add(0, target, sent), x)
        result: Tensor = self.last(x.mean(0, keepdim=True))
        return result


class Nerf(nn.Module):
    """Frequencies of a place, dense layers, a density and a colour."""

    def __init__(self, width: int = 128, frequencies: int = 6) -> None:
        super().__init__()
        self.register_buffer("scales", 2.0 ** torch.arange(frequencies))
        size = 3 + 6 * frequencies
        self.near, self.far = _dense(size, width, width), _dense(width + size, width, width)
        self.density, self.colour = nn.Linear(width, 1), _dense(width + 3, 64, 3)

    def forward(self, places: Tensor, views: Tensor) -> tuple[Tensor, Tensor]:
        waves = (places[..., None] * self.scales).flatten(1)
        code = torch.cat([places, waves.sin(), waves.cos()], -1)
        x = self.far(torch.cat([functional.relu(self.near(code)), code], -1))
        colour = torch.sigmoid(self.colour(torch.cat([x, views], -1)))
        return functional.softplus(self.density(x)), colour


class Experts(nn.Module):
    """The two best of four experts, weighted; all are computed."""

    def __init__(self, width: int = 64, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.wide = nn.Parameter(torch.randn(experts, width, 2 * width) / 8)
        self.narrow = nn.Parameter(torch.randn(experts, 2 * width, width) / 11)

    def forward(self, x: Tensor) -> Tensor:
        scores, best = self.gate(x).softmax(-1).topk(2, -1)
        hidden = functional.silu(torch.einsum("bw,ewh->beh", x, self.wide))
        answers = torch.einsum("beh,ehw->bew", hidden, self.narrow)
        picked = answers.gather(1, best[..., None].expand(-1, -1, answers.shape[-1]))
        return (picked * (scores / scores.sum(-1, keepdim=True))[..., None]).sum(1)


class XDeepFm(nn.Module):
    """Clicks: fields crossed with each other twice, beside layers over all of them."""

    def __init__(self, fields: int = 26, rows: int = 2000, size: int = 16) -> None:
        super().__init__()
        self.table, self.single = nn.Embedding(rows, size), nn.Embedding(rows, 1)
        self.crossed = nn.ModuleList(nn.Conv1d(fields * n, 64, 1) for n in (fields, 64))
        self.deep = _dense(fields * size + 13, 256, 128, 1)
        self.last = nn.Linear(128, 1)

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        fields = self.table(ids)
        x, pooled = fields, []
        for layer in self.crossed:
            pairs = torch.einsum("bhd,bmd->bhmd", fields, x).flatten(1, 2)
            x = functional.relu(layer(pairs))
            pooled.append(x.sum(2))
        deep = self.deep(torch.cat([fields.flatten(1), numbers], 1))
        linear = self.single(ids).sum(1)
        return torch.sigmoid(self.last(torch.cat(pooled, 1)) + deep + linear)


NETWORKS = [
    Network("plain/dlrm", RECOMMENDATION, Dlrm, (unit(16, 13), tokens(1000, 16, _FIELDS, 4))),
    Network("plain/deepfm", RECOMMENDATION, DeepFm, (tokens(8000, 64, _FIELDS),)),
    Network(
        "plain/two_towers", RECOMMENDATION, TwoTowers, (tokens(1000, 8, 20), tokens(1000, 100))
    ),
    Network("plain/din", RECOMMENDATION, Din, (tokens(1000, 16, 20), tokens(1000, 16))),
    Network("plain/autoint", RECOMMENDATION, Autoint, (unit(16, 13), tokens(1000, 16, _FIELDS))),
    Network("plain/xdeepfm", RECOMMENDATION, XDeepFm, (tokens(2000, 64, 26), noise(64, 13))),
    Network("plain/pointnet", MULTI, PointNet, (noise(1, 3, 1024),)),
    Network("plain/graph_attention", MULTI, GraphAttention, (noise(1, 64, 16), unit(1, 64, 64))),
    Network(
        "plain/message_passing", MULTI, MessagePassing,
        (noise(64, 16), tokens(64, 256), tokens(64, 256)),
    ),
    Network("plain/nerf", MULTI, Nerf, (noise(256, 3), noise(256, 3))),
    Network("plain/experts", MULTI, Experts, (noise(32, 64),)),
]  # fmt: skip
