"""torchvision: one small network of each module, detectors with the boxes that they choose."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from benchmarks.zoo.network import MULTI, Input, Network, image
from benchmarks.zoo.torchvision_operators import declare_missing
from benchmarks.zoo.unseen.source import Made, Source, made, smallest

_BEGIN = "torchvision.models."
_IMAGE = (image(1, 3, 96, 96),)
_PICTURES: dict[str, tuple[Input, ...]] = {
    # What the package's first word has, and modules that fix their size.
    "detection": (image(1, 3, 96, 128),),
    "optical_flow": (image(1, 3, 128, 160), image(1, 3, 128, 160)),
    "video": (image(1, 3, 8, 64, 64),),
    "video.mvit": (image(1, 3, 16, 224, 224),),
    "video.s3d": (image(1, 3, 16, 64, 64),),
    "alexnet": (image(1, 3, 128, 128),),
    "inception": (image(1, 3, 128, 128),),
    "maxvit": (image(1, 3, 224, 224),),
}
# Classes are gone through one by one.
_FEW = {"weights_backbone": None, "num_classes": 5}
_OPTIONS: dict[str, dict[str, Any]] = {
    # Further heads are for training alone; sides of images, as many boxes as are told apart.
    "googlenet": {"init_weights": False},
    "inception": {"init_weights": False},
    "vision_transformer": {"image_size": 96},
    "detection": {**_FEW, "min_size": 96, "max_size": 128},
    "segmentation": {"weights_backbone": None},
    "detection.ssd": _FEW,
    "detection.ssdlite": _FEW,
}


class Detector(nn.Module):
    """A detector: boxes, classes, scores and whatever else it gives, one picture after another."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        found = self.network(list(images.unbind(0)))
        return tuple(value for picture in found for value in picture.values())


class _Leaves(nn.Module):
    """All tensors of what a network gives."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(tree_leaves(self.network(*inputs)))


def _models() -> Any:
    declare_missing()
    from torchvision import models
    from torchvision.ops import boxes

    # It asks for all of its operators, where the one that is called is there.
    boxes._assert_has_ops = lambda: None
    return models


@cache
def _members() -> dict[str, list[str]]:
    models = _models()
    found: dict[str, list[str]] = {}
    for name in models.list_models():
        module = models.get_model_builder(name).__module__.removeprefix(_BEGIN)
        if not module.startswith("quantization"):  # The float networks once more.
            found.setdefault(module, []).append(name)
    return found


def _names(each: str) -> list[str]:
    found = _members()
    if each == "family":
        return list(found)
    return [f"{module}/{name}" for module, names in found.items() for name in names]


def _make(name: str, seed: int) -> Made:
    module, _, wanted = name.partition("/")
    chosen = wanted or smallest(_members()[module], lambda one: _parameters(module, one))
    inputs = _of(_PICTURES, module, _IMAGE)

    def make() -> nn.Module:
        network: nn.Module = _models().get_model(chosen, weights=None, **_options(module))
        return Detector(network) if module.startswith("detection") else _Leaves(network)

    return made(chosen, Network(name, MULTI, make, inputs), seed)


def _of(table: dict[str, Any], module: str, usual: Any) -> Any:
    return table.get(module, table.get(module.partition(".")[0], usual))


def _options(module: str) -> dict[str, Any]:
    found: dict[str, Any] = _of(_OPTIONS, module, {})
    return found


def _parameters(module: str, name: str) -> int:
    with torch.device("meta"):
        made_of: Iterable[Tensor] = (
            _models().get_model(name, weights=None, **_options(module)).parameters()
        )
        return sum(p.numel() for p in made_of)


SOURCE = Source(("torchvision",), _names, _make)
