"""segmentation-models-pytorch: each architecture over a small encoder, a U-Net over each kind."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.network import SEGMENTATION, Network, image
from benchmarks.zoo.torchvision_operators import declare_missing
from benchmarks.zoo.unseen.source import Made, Source, made, smallest

_ENCODERS = {"Segformer": "mit_b0", "DPT": "tu-vit_tiny_patch16_224", "PAN": "resnet18"}
_SIDES = {"DPT": 224}
_SIDE = 128


def _package() -> Any:
    declare_missing()
    import segmentation_models_pytorch

    return segmentation_models_pytorch


@cache
def _kinds() -> dict[str, list[str]]:
    """Encoders by their class."""
    found: dict[str, list[str]] = {}
    for name, about in _package().encoders.encoders.items():
        found.setdefault(about["encoder"].__name__, []).append(name)
    return found


def _names(each: str) -> list[str]:
    architectures = [one.__name__ for one in _package().MODEL_ARCHITECTURES_MAPPING.values()]
    over = _kinds() if each == "family" else [name for names in _kinds().values() for name in names]
    return [*architectures, *(f"Unet/{one}" for one in over)]


def _make(name: str, seed: int) -> Made:
    architecture, _, over = name.partition("/")
    names = _kinds().get(over, [over]) if over else [_ENCODERS.get(architecture, "mobilenet_v2")]
    encoder = smallest(names, _parameters) if len(names) > 1 else names[0]
    side = _SIDES.get(architecture, _SIDE)

    def make() -> nn.Module:
        package = getattr(_package(), architecture)
        module: nn.Module = package(encoder, encoder_weights=None, classes=4)
        return module

    network = Network(name, SEGMENTATION, make, (image(1, 3, side, side),))
    return made(f"{architecture} over {encoder}", network, seed)


def _parameters(name: str) -> int:
    with torch.device("meta"):
        encoder = _package().encoders.get_encoder(name, weights=None)
    return sum(p.numel() for p in encoder.parameters())


SOURCE = Source(("segmentation_models_pytorch", "timm", "torchvision"), _names, _make)
