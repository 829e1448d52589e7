"""What a model takes and gives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a model.

    Attributes
    ----------
    name : str
        As the model calls it.
    shape : tuple of int
        Static.
    dtype : str
        As numpy names it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
