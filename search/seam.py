"""A tensor between two conversions that undo each other, by the numbers of a graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seam:
    """A tensor that may have another layout between those who make and those who read it.

    Attributes
    ----------
    tensor : int
        The binding that makes it.
    there : int
        The conversion of its value.
    back : tuple of int
        The conversions back, one a reader.
    readers : tuple of int
        Who reads each of these.

    Examples
    --------
    >>> seam = Seam(tensor=0, there=1, back=(2, 3), readers=(4, 5))
    >>> bin(seam.mask)
    '0b1110'
    """

    tensor: int
    there: int
    back: tuple[int, ...]
    readers: tuple[int, ...]

    @property
    def mask(self) -> int:
        """All of its conversions."""
        return 1 << self.there | sum(1 << index for index in self.back)
