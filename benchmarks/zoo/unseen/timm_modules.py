"""timm: one small network of each of its modules, or of each first word of a module's names."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.network import RESIDUAL, Network, image
from benchmarks.zoo.torchvision_operators import declare_missing
from benchmarks.zoo.unseen.source import Made, Source, made, smallest

_SIDES = (96, 128)
"""Of images, the smallest first; then what a network was published for."""

_LARGE, _BLOCKS = 60e6, 4
"""Of so many parameters a network is made of fewer blocks, where it can be told how many."""


def _timm() -> Any:
    declare_missing()
    import timm

    return timm


def _names(each: str) -> list[str]:
    timm = _timm()
    modules: list[str] = timm.list_modules()
    if each == "family":
        return [module for module in modules if timm.list_models(module=module)]
    found: dict[str, None] = {}
    for module in modules:
        for name in timm.list_models(module=module):
            found[f"{module}/{_word(name)}"] = None
    return list(found)


def _word(name: str) -> str:
    found = re.match(r"[a-z]+", name)
    return found.group() if found else name


def _make(name: str, seed: int) -> Made:
    timm = _timm()
    module, _, word = name.partition("/")
    names = [x for x in timm.list_models(module=module) if not word or _word(x) == word]
    chosen = smallest(names, _parameters)
    deep = _parameters(chosen) > _LARGE
    size: tuple[int, int, int] = timm.get_pretrained_cfg(chosen, allow_unregistered=True).input_size
    for side in (*(side for side in _SIDES if side < size[-1]), size[-1]):
        for given in _options(side, deep=deep):
            try:
                return _of_side(chosen, (1, size[0], side, side), given, seed)
            except Exception:
                if side == size[-1] and not given:
                    raise
    raise AssertionError(name)


def _options(side: int, *, deep: bool) -> list[dict[str, int]]:
    """What a network may take, what makes it smallest first; nothing at last."""
    plain: list[dict[str, int]] = [{"img_size": side}, {}]
    return [{**one, "depth": _BLOCKS} for one in plain if deep] + plain


def _of_side(name: str, shape: tuple[int, int, int, int], given: dict[str, int], seed: int) -> Made:
    def make() -> nn.Module:
        module: nn.Module = _timm().create_model(name, pretrained=False, **given)
        return module

    found = made(
        f"{name}, {shape[-1]} pixels", Network(name, RESIDUAL, make, (image(*shape),)), seed
    )
    with torch.no_grad():
        found.module(*found.inputs)
    return found


def _parameters(name: str) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in _timm().create_model(name, pretrained=False).parameters())


SOURCE = Source(("timm", "torchvision"), _names, _make)
