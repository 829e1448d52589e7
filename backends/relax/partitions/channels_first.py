"""Operators on pictures in libraries that have them channels first."""

from __future__ import annotations

from typing import Generic

from tvm import relax

from collage.backends.relax.calls.layouts import order
from collage.backends.relax.partitions.layers import LayerWalk
from collage.backends.relax.partitions.walk import Tensor


class ChannelsFirst(Generic[Tensor]):
    """A tensor brought to (N, C, spatial...), and back: libraries take out what neighbours undo.

    Parameters
    ----------
    w : LayerWalk
        Gets the permutations.
    layout : str
        Of the operator's data, such as ``NHWC``.
    """

    def __init__(self, w: LayerWalk[Tensor], layout: str) -> None:
        self._w, self._layout = w, layout
        self._plain = "NC" + layout.replace("N", "").replace("C", "")

    def enter(self, expr: relax.Expr) -> Tensor:
        """An operand, channels first."""
        return self._w.permute(self._w.tensor(expr), order(self._layout, self._plain))

    def leave(self, y: Tensor) -> Tensor:
        """A result of the library's, as the operator has it."""
        return self._w.permute(y, order(self._plain, self._layout))
