"""Attention and encoder layers that PyTorch runs as one operator each in inference.

``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` call them on their fast path, which a
program that was exported with it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten

_OF_PLACES, _OF_KEYS = 0, 1
"""What a mask is of: of pairs of places, or of keys; else it has all of a score's axes."""


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (
        F.linear(x, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for x, weight, bias in parts
    )
    scores = torch.matmul(q / math.sqrt(q.shape[-1]), k.transpose(-2, -1))
    shares = _shares(scores, mask, mask_type)
    found = torch.matmul(shares, v).transpose(1, 2).flatten(2)
    found = F.linear(found, proj_weight, proj_bias)
    if not need_weights:
        return found, found.new_empty(0)
    return found, shares.mean(1) if average_attn_weights else shares


def _shares(scores: torch.Tensor, mask: torch.Tensor | None, mask_type: int | None) -> torch.Tensor:
    """As the operator has it: whatever is not zero in a mask is left out, of whatever type."""
    if mask is None:
        return scores.softmax(-1)
    away = mask != 0
    if mask_type == _OF_PLACES:
        away = away[None, None]
    elif mask_type == _OF_KEYS:
        away = away[:, None, None]
    return scores.masked_fill(away, -math.inf).softmax(-1)


def _encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    def first(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    def attended(x: torch.Tensor) -> torch.Tensor:
        return _attention(
            *(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask),
            need_weights=False,
            mask_type=mask_type,
        )[0]

    def forward(x: torch.Tensor) -> torch.Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = F.gelu(hidden) if use_gelu else F.relu(hidden)
        return F.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(first(src))
        return x + forward(second(x))
    x = first(src + attended(src))
    return second(x + forward(x))


def layer_decompositions() -> dict[Any, Callable[..., Any]]:
    """What PyTorch calls for the layers, in terms of plain operators.

    Examples
    --------
    >>> sorted(target.name() for target in layer_decompositions())
    ['aten::_native_multi_head_attention', 'aten::_transformer_encoder_layer_fwd']
    """
    return {
        aten._native_multi_head_attention.default: _attention,
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    }
