"""The sources by name. None imports its package before it is asked for names or a network."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from benchmarks.zoo.unseen import idioms, segmentation, timm_modules, torchvision_modules
from benchmarks.zoo.unseen.source import Made, Source

SOURCES: Mapping[str, Source] = {
    "plain": idioms.SOURCE,
    "timm": timm_modules.SOURCE,
    "torchvision": torchvision_modules.SOURCE,
    "smp": segmentation.SOURCE,
}


def names(each: str, chosen: list[str]) -> list[str]:
    """``source:network`` of the chosen sources whose packages are installed.

    Parameters
    ----------
    each : str
        One network of each ``family``, or of each first ``word`` of a family's names too.
    chosen : list of str
        Names of sources.
    """
    return [
        f"{source}:{name}"
        for source in chosen
        if all(find_spec(package) for package in SOURCES[source].needs)
        for name in SOURCES[source].names(each)
    ]


def make(name: str, seed: int) -> Made:
    """The network of a name, as :func:`names` gives them."""
    source, _, network = name.partition(":")
    return SOURCES[source].make(network, seed)
