"""What a model takes and gives."""

from __future__ import annotations

from dataclasses import dataclass

from collage.backends.relax.tensor_spec import TensorSpec


@dataclass(frozen=True)
class TensorInfo(TensorSpec):
    """One input or output of a model: a tensor's static shape and dtype, and its name.

    Attributes
    ----------
    name : str
        As the model calls it.

    Examples
    --------
    >>> image = TensorInfo((1, 3, 224, 224), "float32", "image")
    >>> image.name, image.bytes
    ('image', 602112)
    """

    name: str
