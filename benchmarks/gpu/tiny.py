"""Two tiny networks for rehearsals: a residual convolution network and a transformer layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TinyConvolutions(nn.Module):
    """Convolutions with batch norm, a residual addition, pooling and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.branch = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16),
        )  # fmt: skip
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        x = torch.relu(x + self.branch(x))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class TinyAttention(nn.Module):
    """Embeddings, one attention layer with its residual, layer norm and a GELU layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 32)
        self.mixed = nn.Linear(32, 96)
        self.joined = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.wide = nn.Linear(32, 64)
        self.narrow = nn.Linear(64, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        batch, length, width = x.shape
        parts = self.mixed(x).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = self.norm(x + self.joined(mixed.transpose(1, 2).reshape(batch, length, width)))
        answer: Tensor = x + self.narrow(nn.functional.gelu(self.wide(x)))
        return answer
