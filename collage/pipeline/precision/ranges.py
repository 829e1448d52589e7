"""The range of a tensor's values that 256 steps are spread over, by what samples showed of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from collage.backends.relax.stepped import Steps

_MOST_VALUES = 1 << 16
"""Of a tensor that are kept, over all samples."""

_PERCENTILE = 99.99
_BINS = 2048
_LEVELS = 128
"""Of one sign, in the histogram that entropy is taken from."""

Range = tuple[float, float]


@dataclass
class Seen:
    """What was seen of a tensor.

    Parameters
    ----------
    samples : int
        How many there will be: each has its share of the values that are kept.

    Examples
    --------
    >>> seen = Seen(samples=1)
    >>> seen.look(np.array([-0.5, 2.0, 1.0], np.float32))
    >>> seen.low, seen.high
    (-0.5, 2.0)
    """

    samples: int
    low: float = 0.0
    high: float = 0.0
    _kept: list[NDArray[np.float32]] = field(default_factory=list)

    def look(self, values: NDArray[np.float32]) -> None:
        """Take another sample into account; infinities and NaNs are left out."""
        flat = values.reshape(-1)
        if not np.isfinite(flat).all():
            flat = flat[np.isfinite(flat)]
        if flat.size == 0:
            return
        self.low = min(self.low, float(flat.min()))
        self.high = max(self.high, float(flat.max()))
        share = max(1, _MOST_VALUES // self.samples)
        # An odd stride: one of channels or columns would see a few of them alone.
        self._kept.append(flat[:: max(1, flat.size // share) | 1].copy())

    @property
    def values(self) -> NDArray[np.float32]:
        """Some of them, of every sample."""
        return np.concatenate(self._kept) if self._kept else np.zeros(1, np.float32)


def min_max(seen: Seen) -> Range:
    """All that was seen."""
    return seen.low, seen.high


def percentile(seen: Seen) -> Range:
    """All but one in ten thousand of each sign."""
    values = seen.values
    found = [0.0, 0.0]
    for place, (sign, end) in enumerate(((-1.0, seen.low), (1.0, seen.high))):
        side = values[values * sign > 0]
        if side.size:
            found[place] = sign * min(abs(end), float(np.percentile(np.abs(side), _PERCENTILE)))
    return found[0], found[1]


def entropy(seen: Seen) -> Range:
    """As much as makes rounding lose the least information.

    Magnitudes beyond a threshold count as the threshold; that one is taken whose histogram, in as
    many steps as there are, has the least Kullback-Leibler divergence from the one before (Migacz,
    "8-bit Inference with TensorRT", 2017).
    """
    most = max(-seen.low, seen.high)
    magnitudes = np.abs(seen.values)
    if most == 0.0:
        return 0.0, 0.0
    counts, edges = np.histogram(magnitudes[magnitudes > 0], _BINS, (0.0, most))
    best, limit = math.inf, most
    for end in range(_LEVELS, _BINS + 1, _LEVELS // 8):
        lost = _divergence(counts, end)
        if lost < best:
            best, limit = lost, float(edges[end])
    return max(seen.low, -limit), min(seen.high, limit)


def _divergence(counts: NDArray[np.int64], end: int) -> float:
    inside = counts[:end].astype(np.float64)
    meant = inside.copy()
    meant[-1] += counts[end:].sum()
    parts = np.linspace(0, end, _LEVELS + 1).astype(np.int64)[:-1]
    used = np.add.reduceat((inside > 0).astype(np.float64), parts)
    sums = np.add.reduceat(inside, parts)
    widths = np.diff([*parts, end])
    spread = np.repeat(np.divide(sums, used, out=np.zeros_like(sums), where=used > 0), widths)
    spread[inside == 0] = 0.0
    total, other = meant.sum(), spread.sum()
    if total == 0.0 or other == 0.0:
        return math.inf
    p, q = meant / total, spread / other
    there = p > 0
    # What rounding makes impossible counts as very unlikely.
    return float(np.sum(p[there] * np.log(p[there] / np.maximum(q[there], 1e-9))))


METHODS: Mapping[str, Callable[[Seen], Range]] = MappingProxyType(
    {"minmax": min_max, "percentile": percentile, "entropy": entropy}
)
"""By the name that a user gives."""


def steps_over(found: Range) -> Steps:
    """256 steps over a range, zero among them.

    Parameters
    ----------
    found : (float, float)
        From where to where; zero is included.

    Returns
    -------
    Steps
        Their width has three digits, so that what is next to nothing in the samples makes no other
        network, which nobody has measured.

    Examples
    --------
    >>> steps_over((0.0, 5.1)), steps_over((-1.0, 1.0)).point
    (Steps(step=0.02, point=0), 127)
    """
    low, high = min(found[0], 0.0), max(found[1], 0.0)
    step = (high - low) / 255
    if not step > 0.0:
        return Steps(1.0, 0)
    digit = 10.0 ** (math.floor(math.log10(step)) - 2)
    step = float(f"{math.ceil(step / digit - 1e-9) * digit:.3g}")
    return Steps(step, min(255, round(-low / step)))
