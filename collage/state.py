"""What a model keeps from one call to the next, as plain data that a manifest can hold.

Compiled code keeps nothing: a tensor that a model changes in place is one more input, and its new
value one more output of the same name. Here is written down which these are and what they hold
before the first call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from collage.tensor_info import TensorInfo


class StateTensor(msgspec.Struct, frozen=True):
    """A tensor that a model changes in place.

    Attributes
    ----------
    name : str
        Of the input and of the output.
    input, output : int
        Which they are.
    fill : bool, int, float or None
        What all of its elements are at first; None where they differ.
    data : bytes
        Where they differ, its elements, the first byte of each the lowest.
    file : str
        Where those lie in a bundle.

    Examples
    --------
    >>> kept = StateTensor.of("cache.k", 1, 1, np.zeros((1, 8, 64), "float32"))
    >>> kept.fill, kept.data
    (0.0, b'')
    >>> StateTensor.of("h0", 1, 1, np.arange(3.0)).initial(TensorInfo((3,), "float64", "h0"))
    array([0., 1., 2.])
    """

    name: str
    input: int
    output: int
    fill: bool | int | float | None = None
    data: bytes = b""
    file: str = ""

    @classmethod
    def of(cls, name: str, place: int, output: int, initial: NDArray[Any]) -> StateTensor:
        """One that holds an array at first.

        Parameters
        ----------
        name : str
            Of the input and of the output.
        place, output : int
            Which they are.
        initial : ndarray
            What it holds.

        Returns
        -------
        StateTensor
            With one number where all elements are the same.
        """
        fill = initial.reshape(-1)[0].item() if initial.size else 0
        same = bool(np.all(initial == initial.dtype.type(fill)))
        # JSON has no infinities.
        if same and (not isinstance(fill, float) or math.isfinite(fill)):
            return cls(name, place, output, fill)
        return cls(name, place, output, data=np.ascontiguousarray(initial).tobytes())

    def initial(self, info: TensorInfo) -> NDArray[Any]:
        """What it holds before the first call.

        Parameters
        ----------
        info : TensorInfo
            Of the input.

        Returns
        -------
        ndarray
            A new one.
        """
        dtype = np.dtype(info.dtype)
        if self.fill is not None:
            return np.full(info.shape, self.fill, dtype)
        return np.frombuffer(self.data, dtype).reshape(info.shape).copy()


def with_names(
    inputs: Sequence[TensorInfo], state: Sequence[StateTensor]
) -> tuple[TensorInfo, ...]:
    """The inputs of a model, with what it keeps under its names.

    Parameters
    ----------
    inputs : sequence of TensorInfo
        Of the model.
    state : sequence of StateTensor
        Which of them it keeps.

    Returns
    -------
    tuple of TensorInfo
        In their order.

    Examples
    --------
    >>> given = [TensorInfo((2,), "float32", "x"), TensorInfo((), "int64", "state_0")]
    >>> [info.name for info in with_names(given, [StateTensor("calls", 1, 1, 0)])]
    ['x', 'calls']
    """
    names = {kept.input: kept.name for kept in state}
    return tuple(replace(one, name=names.get(i, one.name)) for i, one in enumerate(inputs))


def kept_from_call_to_call(state: Sequence[StateTensor]) -> str:
    """What a report says of it.

    Examples
    --------
    >>> kept_from_call_to_call([StateTensor("calls", 1, 1, 0)])
    "the model changes 'calls' and computes with what it finds there: a bundle goes on ..."
    """
    names = ", ".join(f"'{one.name}'" for one in state)
    return (
        f"the model changes {names} and computes with what it finds there: a bundle goes on from "
        "call to call; by name (run, C and C++) these are inputs and outputs, to be fed back"
    )
