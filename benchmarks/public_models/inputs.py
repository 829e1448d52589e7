"""What a public network is fed: seeded random arrays of the shapes and ranges that it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Fed:
    """One input.

    Attributes
    ----------
    name : str
        The graph's.
    shape : tuple of int
        Open dimensions filled in.
    kind : str
        ``normal`` (of standard deviation ``scale``), ``unit`` (uniform from 0 to 1), ``tokens``
        (int64 from ``low`` to below ``high``; ``bytes`` the same in int32, ``wholes`` in float32),
        ``truth``, ``constant`` (``scale`` everywhere), ``page`` (dark strokes in lines on a light
        ground, from -1 to 1) or ``zeros``.
    low, high : int
        Of integers.
    scale : float
        Of ``normal`` and ``constant``.
    """

    name: str
    shape: tuple[int, ...]
    kind: str = "normal"
    low: int = 0
    high: int = 0
    scale: float = 1.0

    def draw(self, random: np.random.Generator) -> Array:
        """The next array."""
        match self.kind:
            case "normal":
                return (self.scale * random.standard_normal(self.shape)).astype("float32")
            case "unit":
                return random.random(self.shape, "float32")
            case "tokens":
                return random.integers(self.low, self.high, self.shape)
            case "bytes":
                return random.integers(self.low, self.high, self.shape, "int32")
            case "wholes":
                return random.integers(self.low, self.high, self.shape).astype("float32")
            case "constant":
                return np.full(self.shape, self.scale, "float32")
            case "truth":
                return random.random(self.shape) < 0.7
            case "page":
                return _page(random, self.shape)
            case "zeros":
                return np.zeros(self.shape, "float32")
            case other:
                raise ValueError(f"no kind of input is called '{other}'")


def _page(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Pictures with lines of strokes as high and as far from each other as printed letters."""
    picture: Array = random.normal(0.9, 0.02, shape).astype("float32")
    height, width = shape[-2:]
    for top in range(24, height - 40, 48):
        for left in range(24, width - 40, 12):
            if random.random() < 0.8:
                begin, thick = left + int(random.integers(4)), int(random.integers(2, 6))
                tall = int(random.integers(12, 26))
                picture[..., top : top + tall, begin : begin + thick] = -0.8
                across = top + int(random.integers(tall))
                picture[..., across : across + 3, left : left + 9] = -0.8
    return picture


def page(name: str, *shape: int) -> Fed:
    """A picture of something like print: what detectors of text find something in."""
    return Fed(name, shape, "page")


def normal(name: str, *shape: int, scale: float = 1.0) -> Fed:
    """Normal values: a normalized picture, a sound, a spectrum."""
    return Fed(name, shape, scale=scale)


def unit(name: str, *shape: int) -> Fed:
    """Uniform from 0 to 1."""
    return Fed(name, shape, "unit")


def tokens(name: str, high: int, *shape: int, low: int = 0) -> Fed:
    """Whole numbers, int64."""
    return Fed(name, shape, "tokens", low, high)


def bytes_of(name: str, high: int, *shape: int) -> Fed:
    """Whole numbers, int32."""
    return Fed(name, shape, "bytes", 0, high)


def wholes(name: str, high: int, *shape: int) -> Fed:
    """Whole numbers, float32."""
    return Fed(name, shape, "wholes", 0, high)


def constant(name: str, value: float, *shape: int) -> Fed:
    """The same number everywhere, float32."""
    return Fed(name, shape, "constant", scale=value)


def truth(name: str, *shape: int) -> Fed:
    """Seven of ten are true."""
    return Fed(name, shape, "truth")


def zeros(name: str, *shape: int) -> Fed:
    """A state before the first call."""
    return Fed(name, shape, "zeros")


def fixed(name: str, value: int, *shape: int) -> Fed:
    """The same whole number everywhere, int64: a sampling rate."""
    return Fed(name, shape, "tokens", value, value + 1)
