"""What a bundle's functions take and give, as its manifest lists them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collage.structure import Signature
from collage.tensor_info import TensorInfo

MAIN = "main"
"""What a function is called where nobody says otherwise."""


class Variant(msgspec.Struct, frozen=True):
    """A compiled function for one set of shapes.

    Attributes
    ----------
    entry : str
        What it is called in the library.
    inputs, outputs : tuple of TensorInfo
        In the order of the call.

    Examples
    --------
    >>> x = TensorInfo((4, 8), "float32", "x")
    >>> Variant("main_4", inputs=(x,), outputs=()).inputs[0].shape
    (4, 8)
    """

    entry: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


class Padding(msgspec.Struct, frozen=True):
    """An extent that may be padded up to that of a larger variant: proven to change nothing.

    Attributes
    ----------
    inputs, outputs : tuple of (int, int)
        Which axis of which input it is, and of which output.
    sizes : tuple of int
        The extents for which it was proven, none of which any variant has.

    Examples
    --------
    The batch of one input and one output, between the buckets 1, 2 and 4:

    >>> Padding(inputs=((0, 0),), outputs=((0, 0),), sizes=(3,)).sizes
    (3,)
    """

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]


class Rows(msgspec.Struct, frozen=True):
    """Rows that are computed as many as there may be, of which the data say how many there are.

    Attributes
    ----------
    count : int
        The output that says it; callers do not see it.
    outputs : tuple of (int, int)
        Which axis of which output is cut.

    Examples
    --------
    Boxes and their classes, and how many:

    >>> Rows(count=2, outputs=((0, 0), (1, 0))).count
    2
    """

    count: int
    outputs: tuple[tuple[int, int], ...]


class Places(msgspec.Struct, frozen=True):
    """An input that holds places in a tensor.

    Attributes
    ----------
    input : int
        Which one.
    low, high : int
        The first and the last place that there is.

    Examples
    --------
    Tokens of a vocabulary of a thousand:

    >>> Places(input=0, low=0, high=999).high
    999
    """

    input: int
    low: int
    high: int


class FunctionEntry(msgspec.Struct, frozen=True):
    """A function of a bundle.

    Attributes
    ----------
    name : str
        As the model calls it.
    variants : tuple of Variant
        One, or one for each bucket of shapes, the largest last.
    padding : Padding or None
        Where shapes between the buckets may be padded.
    signature : Signature or None
        How inputs and outputs lie in dicts, tuples and such; None where they lie side by side, as
        in bundles of earlier releases.
    rows : tuple of Rows
        What is cut off results.
    places : tuple of Places
        Inputs that have to lie between bounds.

    Examples
    --------
    >>> x, y = TensorInfo((1, 8), "float32", "x"), TensorInfo((1, 8), "float32", "y")
    >>> function = FunctionEntry("main", (Variant("main", (x,), (y,)),))
    >>> function.inputs[0].name, function.show(0)
    ('x', 'float32[1, 8]')
    """

    name: str
    variants: tuple[Variant, ...]
    padding: Padding | None = None
    signature: Signature | None = None
    rows: tuple[Rows, ...] = ()
    places: tuple[Places, ...] = ()

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Of the largest variant."""
        return self.variants[-1].inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Of the largest variant, without the numbers of rows, which the others are cut to."""
        counts = {rows.count for rows in self.rows}
        outputs = self.variants[-1].outputs
        return tuple(info for index, info in enumerate(outputs) if index not in counts)

    def extents(self, index: int, axis: int) -> tuple[int, ...]:
        """The extents that an input may have on an axis, ascending.

        Parameters
        ----------
        index : int
            The input's.
        axis : int
            The axis.

        Returns
        -------
        tuple of int
            Those of all variants, and those that are padded.
        """
        extents = {variant.inputs[index].shape[axis] for variant in self.variants}
        if self.padding is not None and (index, axis) in self.padding.inputs:
            extents |= set(self.padding.sizes)
        return tuple(sorted(extents))

    def show(self, index: int) -> str:
        """An input's type and shapes, for example ``float32[1..8, 3]`` or ``float32[1|2|4, 3]``."""
        info = self.inputs[index]
        shape = [show_extents(self.extents(index, axis)) for axis in range(len(info.shape))]
        return f"{info.dtype}[{', '.join(shape)}]"


def show_extents(extents: Sequence[int]) -> str:
    """Extents as a range where they are one, else each of them.

    Parameters
    ----------
    extents : sequence of int
        Ascending.

    Examples
    --------
    >>> show_extents((3,)), show_extents((1, 2, 3, 4)), show_extents((1, 2, 4))
    ('3', '1..4', '1|2|4')
    """
    if len(extents) > 2 and extents[-1] - extents[0] == len(extents) - 1:
        return f"{extents[0]}..{extents[-1]}"
    return "|".join(map(str, extents))
