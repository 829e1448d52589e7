"""Rows of tensors of which only some are meant, as many as data say."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

Pieces = tuple[tuple[fx.Node | None, int], ...]


@dataclass(frozen=True)
class Rows:
    """Along an axis not all of a tensor is meant.

    Attributes
    ----------
    axis : int
        Counted from the front.
    valid : tuple of (fx.Node or None, int)
        Piece by piece along it: what says which are, None where all are, and how many there are.
    among : tuple of (fx.Node or None, int)
        As ``valid`` of the tensor whose rows these are the places of, of those that are; empty for
        everything else.
    """

    axis: int
    valid: Pieces
    among: Pieces = ()


class UnknownError(Exception):
    """What becomes of rows is not known.

    Parameters
    ----------
    node : torch.fx.Node, optional
        Where.
    """

    def __init__(self, node: fx.Node | None = None) -> None:
        super().__init__("" if node is None else node.format_node())
        self.node = node
