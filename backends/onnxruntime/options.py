"""Attributes of the ``onnxruntime`` target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OnnxruntimeOptions:
    """Attributes of the ``onnxruntime`` target.

    Attributes
    ----------
    blocked : bool
        Let it compute convolutions and what is between them in blocks of channels (its highest
        level of optimization), for which it converts what enters and leaves; otherwise it keeps
        channels first throughout.
    """

    blocked: bool = True
