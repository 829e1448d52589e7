"""The networks as PyTorch modules: real architectures from configurations, seeded random weights.

torchvision and transformers build them; nothing is downloaded. Every process of a benchmark loads
the same weights, which :func:`build` makes and :func:`save` writes once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu.tiny import TinyAttention, TinyConvolutions
from benchmarks.zoo.torchvision_operators import declare_missing
from benchmarks.zoo.weights import settle

SEQUENCE = 128
"""Tokens of the language models."""


@dataclass(frozen=True)
class Network:
    """How one network is built and fed.

    Attributes
    ----------
    make : callable
        The module with its initial weights.
    inputs : callable
        Random inputs for a batch size, integers as int64, images as float32.
    convolutional : bool
        Whether PyTorch is given ``channels_last`` memory.
    samples : int
        That batch norms take their statistics from.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int, torch.Generator], tuple[Tensor, ...]]
    convolutional: bool
    samples: int = 8


def network(name: str) -> Network:
    """One of ours, or of the zoo, whose names have a slash."""
    if "/" not in name:
        # Without its compiled part torchvision is not even imported, by transformers neither.
        declare_missing()
        return NETWORKS[name]
    from benchmarks.zoo.families import NETWORKS as ZOO

    chosen = ZOO[name]

    def inputs(batch: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        drawn = [wanted.draws(batch, generator) for wanted in chosen.inputs]
        return tuple(drawn)

    return Network(chosen.module, inputs, chosen.convolutional, samples=3)


def build(name: str, seed: int = 0) -> nn.Module:
    """A network in float32 with random weights, in inference mode."""
    torch.manual_seed(seed)
    chosen = network(name)
    module = chosen.make()
    return settle(module, chosen.inputs(chosen.samples, torch.Generator().manual_seed(seed + 1)))


def save(module: nn.Module, inputs: tuple[Tensor, ...], path: Path, dtype: torch.dtype) -> None:
    """Write weights and inputs, floats rounded to ``dtype``."""
    weights = module.state_dict()
    for name, value in weights.items():
        # In place: a copy lacks the versions of its parts, which some of torchvision's ask for.
        weights[name] = _rounded(value, dtype)
    torch.save({"weights": weights, "inputs": [_rounded(x, dtype) for x in inputs]}, path)


def load(name: str, path: Path, dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module and its inputs in ``dtype``, with the weights that were saved, on the CPU."""
    saved = torch.load(path, weights_only=True)
    module = network(name).make().to(dtype).eval()
    module.load_state_dict(saved["weights"])
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return module, tuple(_rounded(x, dtype) for x in saved["inputs"])


def _rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _images(size: int) -> Callable[[int, torch.Generator], tuple[Tensor, ...]]:
    def make(batch: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        # Coarse blobs under noise: white noise alone averages out to one and the same answer.
        blobs = torch.randn(batch, 3, 7, 7, generator=generator)
        noise = torch.randn(batch, 3, size, size, generator=generator)
        return (nn.functional.interpolate(blobs, (size, size), mode="bilinear") + 0.3 * noise,)

    return make


def _tokens(vocabulary: int, length: int) -> Callable[[int, torch.Generator], tuple[Tensor, ...]]:
    def make(batch: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randint(0, vocabulary, (batch, length), generator=generator),)

    return make


def _torchvision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        module: nn.Module = getattr(torchvision.models, name)(weights=None)
        return module

    return make


class _Bert(nn.Module):
    """BERT-base's encoder: the last hidden state, every token attended to."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(attn_implementation="sdpa")
        self.network = BertModel(config, add_pooling_layer=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden: Tensor = self.network(input_ids=tokens).last_hidden_state
        return hidden


class _Gpt2(nn.Module):
    """GPT-2 (124M) without a cache: logits of every position."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.network = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa", use_cache=False))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.network(input_ids=tokens, use_cache=False).logits
        return logits


class _Vit(nn.Module):
    """ViT-B/16: logits of 1000 classes."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import ViTConfig, ViTForImageClassification

        config = ViTConfig(num_labels=1000, attn_implementation="sdpa")
        self.network = ViTForImageClassification(config)

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.network(pixel_values=image).logits
        return logits


NETWORKS: dict[str, Network] = {
    "resnet50": Network(_torchvision("resnet50"), _images(224), True),
    "resnext50": Network(_torchvision("resnext50_32x4d"), _images(224), True),
    "mobilenet_v2": Network(_torchvision("mobilenet_v2"), _images(224), True),
    "bert_base": Network(_Bert, _tokens(30522, SEQUENCE), False),
    "gpt2": Network(_Gpt2, _tokens(50257, SEQUENCE), False),
    "vit_b16": Network(_Vit, _images(224), False),
    # For rehearsals on a CPU.
    "tiny_convolutions": Network(TinyConvolutions, _images(32), True),
    "tiny_attention": Network(TinyAttention, _tokens(50, 16), False),
}

MODELS = ("resnet50", "resnext50", "mobilenet_v2", "bert_base", "gpt2", "vit_b16")
TINY = ("tiny_convolutions", "tiny_attention")


def export(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """The module as a ``torch.export.ExportedProgram`` of these inputs' shapes.

    As ``collage.optimize`` exports a module, which takes what ``torch.export`` alone refuses.
    """
    from collage.importers.torch import export_module

    return export_module(module, inputs).program
