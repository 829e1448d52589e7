"""A tensor between conversions that undo each other, by the numbers of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Seam:
    """A tensor that may have another layout between those who make and those who read it.

    Attributes
    ----------
    tensor : int
        The binding that makes it.
    there : tuple of int
        The conversions of its value, one a reader; ascending.
    back : tuple of int
        The conversions of these back.
    readers : tuple of int
        Who reads each of those.

    Examples
    --------
    >>> seam = Seam(tensor=0, there=(1, 3), back=(2, 4), readers=(5, 6))
    >>> bin(seam.mask), [bin(one) for one in seam.undone]
    ('0b11110', ['0b110', '0b11000'])
    >>> bin(seam.there_for(0b100000)), bin(seam.back_for(0b1000000))
    ('0b10', '0b10000')
    """

    tensor: int
    there: tuple[int, ...]
    back: tuple[int, ...]
    readers: tuple[int, ...]

    @property
    def mask(self) -> int:
        """All of its conversions."""
        return sum(self.undone)

    @property
    def undone(self) -> tuple[int, ...]:
        """By reader, both of its conversions, which together are none."""
        return tuple(1 << there | 1 << back for there, back in self.pairs())

    def pairs(self) -> Iterator[tuple[int, int]]:
        """By reader, its conversion and the one back."""
        return zip(self.there, self.back, strict=True)

    def there_for(self, nodes: int) -> int:
        """The conversions for those readers that a node set holds."""
        return self._for(self.there, nodes)

    def back_for(self, nodes: int) -> int:
        """The conversions back for those readers that a node set holds."""
        return self._for(self.back, nodes)

    def _for(self, conversions: tuple[int, ...], nodes: int) -> int:
        pairs = zip(conversions, self.readers, strict=True)
        return sum(1 << index for index, reader in pairs if nodes >> reader & 1)
