"""Modules as people write them: cells in loops, hooks, shared weights, parametrizations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Recurrent(nn.Module):
    """A cell in a loop over the steps, states in a list."""

    def __init__(self, cell: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.cell = cell(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        state, found = x.new_zeros(x.shape[0], 8), []
        for step in x.unbind(1):
            state = self.cell(step, state)
            found.append(state)
        return torch.stack(found, 1)


class Packed(nn.Module):
    """Rows of several lengths through a recurrent layer, padded again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(8, 5, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, torch.tensor([9, 4]), batch_first=True)
        found: Tensor = pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]
        return found


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        absent = torch.arange(x.shape[1]).expand(x.shape[:2]) >= 7
        found: tuple[Tensor, Tensor] = self.layer(
            x, x, x, key_padding_mask=absent, attn_mask=causal.isinf()
        )
        return found


class Written(nn.Module):
    """Buffers that are made of shapes, and a result that is filled piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(9, 8))
        self.scale = nn.ParameterDict({"a": nn.Parameter(torch.randn(8))})

    def forward(self, x: Tensor) -> Tensor:
        found = torch.zeros_like(x)
        found[:, ::2] = x[:, ::2] * self.scale["a"]
        found[:, 1::2] += self.get_buffer("table")[1::2]
        found[..., -1].mul_(2.0)
        found[0, 3] = found[1, 2]
        return found


class Shared(nn.Module):
    """One weight in two places, and a layer in a list twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        layer = nn.Linear(8, 8)
        self.layers = nn.ModuleList([layer, nn.GELU(approximate="tanh"), layer])
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for layer in self.layers:
            x = x + layer(x)
        found: Tensor = self.out(F.layer_norm(x, x.shape[-1:]))
        return found


class Hooked(nn.Module):
    """A hook that changes what a layer gives, and a module that is called by another name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.layer.register_forward_hook(lambda _module, _given, found: found.tanh())
        self.act = getattr(nn, "Mish")()  # noqa: B009 - as configurations name it

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.act(self.layer(x))
        return found


def spectral() -> nn.Module:
    return nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(6, 8)),
        parametrizations.weight_norm(nn.Linear(8, 8)),
        parametrizations.orthogonal(nn.Linear(8, 8)),
    )


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
