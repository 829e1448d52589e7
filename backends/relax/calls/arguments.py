"""An operator's arguments and attributes as plain Python values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from collage.backends.relax.static_shape import static_shape


def operator_name(call: relax.Call) -> str:
    """The name of a call's operator without ``relax.``, such as ``nn.conv2d``.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((3,), "float32"))
    >>> operator_name(relax.op.nn.relu(x))
    'nn.relu'
    """
    return str(call.op.name).removeprefix("relax.")


def number(expr: relax.Expr) -> float:
    """A number in an argument: a bound of ``clip``, an index of ``strided_slice``.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((3,), "float32"))
    >>> [number(bound) for bound in relax.op.clip(x, 0, 6).args[1:]]
    [0.0, 6.0]
    """
    return float(getattr(expr, "value", expr))


def axes_of(call: relax.Call, rank: int, name: str = "axis") -> list[int]:
    """An operator's axes counted from 0; all of them where it names none.

    Parameters
    ----------
    call : relax.Call
        Its attribute is a number, several or none.
    rank : int
        Of the operand.
    name : str
        Of the attribute.

    Returns
    -------
    list of int
        Ascending.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((2, 3, 5), "float32"))
    >>> axes_of(relax.op.sum(x, [-1, 0]), 3), axes_of(relax.op.sum(x), 3)
    ([0, 2], [0, 1, 2])
    """
    axes = getattr(call.attrs, name)
    if axes is None:
        return list(range(rank))
    listed = [axes] if isinstance(axes, int) else list(axes)
    return sorted(int(axis) % rank for axis in listed)


@dataclass(frozen=True)
class Slice:
    """A ``strided_slice`` by axis of its operand, all of them.

    Attributes
    ----------
    start, step : tuple of int
        The first element, in bounds, and the way to the next.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((2, 7), "float32"))
    >>> Slice.of(relax.op.strided_slice(x, [1], [-1], [-100], [-2]))
    Slice(start=(0, 6), step=(1, -2))
    """

    start: tuple[int, ...]
    step: tuple[int, ...]

    @classmethod
    def of(cls, call: relax.Call) -> Slice:
        """The slice that a call takes.

        Raises
        ------
        UnsupportedProblemError
            When the operand's shape is not static.
        """
        shape = static_shape(call.args[0])
        axes, begins = ([int(number(v)) for v in call.args[i].fields] for i in (1, 2))
        steps = [int(number(v)) for v in call.args[4].fields] if len(call.args) > 4 else []
        start, step = [0] * len(shape), [1] * len(shape)
        for place, axis in enumerate(axes):
            extent = shape[axis]
            step[axis] = steps[place] if steps else 1
            begin = begins[place] + extent if begins[place] < 0 else begins[place]
            # As TOPI clamps them: a backward slice begins at the last element at most.
            start[axis] = min(max(begin, 0), extent if step[axis] > 0 else extent - 1)
        return cls(tuple(start), tuple(step))

    @classmethod
    def backwards(cls, axis: int, shape: Sequence[int]) -> Slice:
        """All of a tensor, along one axis from its end.

        Parameters
        ----------
        axis : int
            Negative ones count from the last.
        shape : sequence of int
            Of the tensor.

        Returns
        -------
        Slice
            With a step of -1 there.

        Examples
        --------
        >>> Slice.backwards(-1, (2, 7))
        Slice(start=(0, 6), step=(1, -1))
        """
        start, step = [0] * len(shape), [1] * len(shape)
        start[axis], step[axis] = shape[axis] - 1, -1
        return cls(tuple(start), tuple(step))

    def ends(self, taken: Sequence[int]) -> list[int]:
        """By axis the first place that is not reached, for libraries in which a negative one counts
        from the end: far below 0 where that is before the first.

        Parameters
        ----------
        taken : sequence of int
            How many elements are taken.

        Examples
        --------
        >>> Slice(start=(0, 6), step=(1, -2)).ends((2, 4))
        [2, -2147483648]
        """
        ends = (a + b * n for a, b, n in zip(self.start, self.step, taken, strict=True))
        return [end if end >= 0 else -(2**31) for end in ends]


def attention_scale(call: relax.Call) -> float:
    """What the scores of an ``attention`` are multiplied by.

    Examples
    --------
    >>> q = relax.Var("q", relax.TensorType((1, 8, 2, 64), "float16"))
    >>> attention_scale(relax.op.nn.attention(q, q, q))
    0.125
    """
    scale = call.attrs.scale
    if scale is not None:
        return float(scale)
    return 1.0 / math.sqrt(static_shape(call.args[0], "the query")[-1])


_MASKED = -1e9
"""Far below any score, and in the range of all float types but float16."""


def causal_bias(call: relax.Call) -> NDArray[np.float32] | None:
    """What an ``attention``'s causal mask adds to its scores; None where it has none.

    Parameters
    ----------
    call : relax.Call
        Of ``attention`` or ``attention_bias``.

    Returns
    -------
    ndarray or None
        Of shape (1, 1, queries, keys).

    Examples
    --------
    >>> q = relax.Var("q", relax.TensorType((1, 2, 4, 8), "float32"))
    >>> causal_bias(relax.op.nn.attention(q, q, q, causal_mask="TopLeft")).tolist()
    [[[[0.0, -1000000000.0], [0.0, 0.0]]]]
    """
    if call.attrs.causal_mask is None:
        return None
    rows, columns = (static_shape(arg)[1] for arg in call.args[:2])
    last = columns - rows if str(call.attrs.causal_mask) == "BottomRight" else 0
    allowed = np.tri(rows, columns, last, dtype=bool)[np.newaxis, np.newaxis]
    return np.where(allowed, 0.0, _MASKED).astype(np.float32)


def extents(shape: Sequence[int], kept: Sequence[int]) -> list[int]:
    """A shape with 1 for all axes but the kept ones, which broadcasts against it.

    Parameters
    ----------
    shape : sequence of int
        Of the whole.
    kept : sequence of int
        Axes, counted from the front.

    Returns
    -------
    list of int
        As many as the shape has.

    Examples
    --------
    >>> extents((2, 3, 5), [1])
    [1, 3, 1]
    """
    return [extent if axis in kept else 1 for axis, extent in enumerate(shape)]


def batch_norm_terms(call: relax.Call) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What a ``batch_norm`` of constants multiplies each channel by, and what it adds.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((1, 2), "float32"))
    >>> mean, variance = relax.const(np.float32([1, 1])), relax.const(np.float32([3, 8]))
    >>> norm = relax.op.nn.batch_norm(x, mean, mean, mean, variance, axis=1, epsilon=1.0)
    >>> [terms.tolist() for terms in batch_norm_terms(norm)]
    [[0.5, 0.3333333333333333], [0.5, 0.6666666666666667]]
    """
    attrs = call.attrs
    gamma, beta, mean, variance = (arg.value.numpy().astype(np.float64) for arg in call.args[1:5])
    factor = 1.0 / np.sqrt(variance + float(attrs.epsilon))
    if attrs.scale:
        factor = factor * gamma
    shift = -mean * factor
    return factor, shift + beta if attrs.center else shift
