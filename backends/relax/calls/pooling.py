"""How far the windows of a pooling operator reach, which rounding up lets them do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

from collage.backends.relax.static_shape import static_shape

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
"""Spatial axes of a layout, by their number."""


def split_padding(values: Sequence[int], rank: int) -> tuple[list[int], list[int]]:
    """Relax's padding as (before, after) per spatial axis.

    Parameters
    ----------
    values : sequence of int
        As the operator has them.
    rank : int
        Number of spatial axes.

    Returns
    -------
    tuple[list[int], list[int]]
        The first ``rank`` values, and those behind them.

    Examples
    --------
    >>> split_padding([1, 2, 3, 4], 2)
    ([1, 2], [3, 4])
    """
    listed = [int(value) for value in values]
    return listed[:rank], listed[rank:]


@dataclass(frozen=True)
class PoolPadding:
    """A pooling operator's padding per spatial axis.

    Attributes
    ----------
    before, after : list of int
        As the operator says.
    reached : list of int
        Places behind the data that its windows reach: more than ``after`` where ``ceil_mode`` adds
        a last window, fewer where windows end before; negative where they leave data out.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((1, 8, 6, 6), "float32"))
    >>> pool = relax.op.nn.max_pool2d(x, (3, 3), strides=(2, 2), ceil_mode=True)
    >>> PoolPadding.of(relax.BlockBuilder().normalize(pool)).reached
    [1, 1]
    """

    before: list[int]
    after: list[int]
    reached: list[int]

    @classmethod
    def of(cls, call: relax.Call) -> PoolPadding:
        """The padding of a call of ``max_pool…d`` or ``avg_pool…d``, of any layout.

        Raises
        ------
        UnsupportedProblemError
            When a shape is not static.
        """
        attrs, layout = call.attrs, str(call.attrs.layout)
        rank = len(attrs.pool_size)
        given, wanted = static_shape(call.args[0], "the data"), static_shape(call, "the result")
        before, after = split_padding(attrs.padding, rank)
        reached = []
        for place, axis in enumerate(SPATIAL[rank]):
            extent, out = given[layout.index(axis)], wanted[layout.index(axis)]
            window = (int(attrs.pool_size[place]) - 1) * int(attrs.dilation[place]) + 1
            span = (out - 1) * int(attrs.strides[place]) + window
            reached.append(span - extent - before[place])
        return cls(before, after, reached)

    @property
    def exceeded(self) -> bool:
        """Whether a window reaches beyond the padding."""
        return any(need > have for need, have in zip(self.reached, self.after, strict=True))
