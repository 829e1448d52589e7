"""What a source of networks is, and how the smallest of many names is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.zoo.network import Network
from benchmarks.zoo.weights import settle

SETTLING_SAMPLES = 3

_SMALL_FIRST = (
    *("atto", "femto", "pico", "zepto", "nano", "xxsmall", "xxtiny", "xxs", "xxt", "n", "p"),
    *("xsmall", "xtiny", "xs", "xt", "micro", "mini", "ti", "tiny", "lite", "t", "small", "s"),
)  # fmt: skip
"""Words that names of small networks have, the smallest first."""

_LAST = ("base", "b", "medium", "m", "large", "l", "xlarge", "xl", "huge", "giant", "gigantic")
_TRIED = 4


@dataclass(frozen=True)
class Made:
    """A network as it was made.

    Attributes
    ----------
    built : str
        What it is called in its package, and what is smaller than usual.
    module : nn.Module
        With seeded random weights, in inference mode.
    inputs : tuple of Tensor
    """

    built: str
    module: nn.Module
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Source:
    """A package of models.

    Attributes
    ----------
    needs : tuple of str
        Packages besides torch.
    names : callable
        Of all that it has; given how much of it is wanted (``family`` or ``word``).
    make : callable
        The network of a name, with a seed.
    """

    needs: tuple[str, ...]
    names: Callable[[str], list[str]]
    make: Callable[[str, int], Made]


def made(built: str, network: Network, seed: int) -> Made:
    """A network with its weights settled, and its inputs.

    Parameters
    ----------
    built : str
        As in :class:`Made`.
    network : Network
    seed : int
    """
    torch.manual_seed(seed)
    module = network.module()
    generator = torch.Generator().manual_seed(seed + 1)
    settle(module, [wanted.draws(SETTLING_SAMPLES, generator) for wanted in network.inputs])
    return Made(built, module, network.draw(seed))


def smallest(names: Iterable[str], parameters: Callable[[str], int]) -> str:
    """The network with the fewest parameters among the few whose names sound small.

    Parameters
    ----------
    names : iterable of str
        At least one.
    parameters : callable
        How many a name's network has; one that cannot be made on no device raises anything.

    Examples
    --------
    >>> sizes = {"swin_tiny": 28, "swin_small": 50, "swin_base": 88}
    >>> smallest(sizes, sizes.__getitem__)
    'swin_tiny'
    """
    few = sorted(names, key=_sound)[:_TRIED]
    counted: dict[str, int] = {}
    for name in few:
        try:
            counted[name] = parameters(name)
        except Exception:  # noqa: BLE001 - packages raise anything; another one will do
            continue
    return min(counted, key=counted.__getitem__) if counted else few[0]


def _sound(name: str) -> tuple[int, list[int], str]:
    words = re.split(r"[^a-z0-9]+", name.lower())
    ranks = [_SMALL_FIRST.index(word) for word in words if word in _SMALL_FIRST]
    worst = len(_SMALL_FIRST) + (2 if words[0] == "test" else any(w in _LAST for w in words))
    return min(ranks, default=worst), [int(n) for n in re.findall(r"\d+", name)], name
