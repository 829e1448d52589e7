"""What the elements of a resized axis are made of: known from the sizes and the way of walking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Taps:
    """What the elements along an axis are made of.

    Attributes
    ----------
    before : int
        Elements along the axis that is read.
    places : NDArray
        ``(taps, elements)``; within the axis that is read.
    weights : NDArray
        Of each of them.
    """

    before: int
    places: NDArray[np.int32]
    weights: NDArray[np.float32]

    @property
    def taps(self) -> int:
        """Elements that one is made of."""
        return int(self.places.shape[0])

    @property
    def after(self) -> int:
        """Elements along the axis of the result."""
        return int(self.places.shape[1])

    @property
    def changes_nothing(self) -> bool:
        """Whether every element is the one at its own place."""
        own = (self.places == np.arange(self.after)) | (self.weights == 0)
        return self.before == self.after and bool(np.all(own))


def taps(before: int, after: int, attrs: Any) -> Taps | None:
    """What elements along one axis are made of; None where it takes more than the sizes to say.

    Parameters
    ----------
    before, after : int
        Elements along the axis.
    attrs : relax.op.image.Resize2DAttrs
        How it is resized.

    Returns
    -------
    Taps or None
        Places beyond an end are the end's; those without weight may be any.
    """
    walked = _walk(before, after, str(attrs.coordinate_transformation_mode))
    if walked is None:
        return None
    if str(attrs.method) == "nearest_neighbor":
        return _nearest(before, walked, str(attrs.rounding_method))
    first = np.floor(walked)
    part = walked - first
    if str(attrs.method) == "linear":
        offsets = np.arange(2)
        weights = np.stack([1 - part, part])
    else:
        offsets = np.arange(-1, 3)
        weights = _cubic(part, float(attrs.cubic_alpha))
    places = first.astype(np.int64) + offsets[:, None]
    inside = (places >= 0) & (places < before)
    if str(attrs.method) == "cubic" and int(attrs.cubic_exclude):
        weights = np.where(inside, weights, 0)
        weights = weights / weights.sum(axis=0)
    places = np.clip(places, 0, before - 1)
    return Taps(before, places.astype(np.int32), weights.astype(np.float32))


def _nearest(before: int, walked: NDArray[np.float64], rounding: str) -> Taps | None:
    """One element each, by TVM's roundings, a little beside the numbers themselves."""
    match rounding:
        case "floor":
            found = np.floor(walked + 1e-5)
        case "ceil":
            found = np.ceil(walked - 1e-5)
        case "round_prefer_floor":
            found = np.ceil(walked - 0.5)
        case "round_prefer_ceil":
            found = np.floor(walked + 0.5)
        case _:
            return None
    places = np.clip(found, 0, before - 1).astype(np.int32)[None]
    return Taps(before, places, np.ones_like(places, np.float32))


def _walk(before: int, after: int, mode: str) -> NDArray[np.float64] | None:
    """Where the elements of an axis lie on the one that is read."""
    place = np.arange(after, dtype=np.float64)
    match mode:
        case "half_pixel":
            return (place + 0.5) * before / after - 0.5
        case "pytorch_half_pixel":
            return (place + 0.5) * before / after - 0.5 if after > 1 else place
        case "asymmetric":
            return place * before / after
        case "align_corners" if after > 1:
            return place * (before - 1) / (after - 1)
    return None


def _cubic(part: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Weights of the four elements around a place (Keys, IEEE TASSP 29, 1981)."""
    distances = np.abs(np.stack([part + 1, part, part - 1, part - 2]))
    near = (alpha + 2) * distances**3 - (alpha + 3) * distances**2 + 1
    far = alpha * (distances**3 - 5 * distances**2 + 8 * distances - 4)
    return np.where(distances <= 1, near, far)
