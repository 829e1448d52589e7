"""Inputs that hold places in a tensor, or what was compiled in; others are an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from collage.backends.contract.errors import InputError
from collage.bundle.calling.tensors import is_torch
from collage.bundle.signature import Places
from collage.structure import FixedTensor

_PROCESSOR = tvm.cpu().dlpack_device_type()


def require_places(places: Places, name: str, value: Any) -> None:
    """See that an input holds only places that there are.

    Of what lies on a GPU nothing is known without waiting for it: kernels take the nearest place.

    Parameters
    ----------
    places : Places
        What there are.
    name : str
        The input's.
    value : array or tensor
        What was given for it.

    Raises
    ------
    InputError
        Names the first one that there is not, and where it stands.

    Examples
    --------
    >>> require_places(Places(0, 0, 49), "tokens", np.array([[3, 50]]))
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.InputError: input 'tokens' has 50 at [0, 1]: it chooses one \
of 0 to 49
    """
    array = _on_this_side(value)
    if array is None or not array.size:
        return
    if array.min() >= places.low and array.max() <= places.high:
        return
    at = np.argwhere((array < places.low) | (array > places.high))[0].tolist()
    wrong = array[tuple(at)]
    raise InputError(
        f"input '{name}' has {wrong} at {at}: it chooses one of {places.low} to {places.high}",
        value=int(wrong),
    )


def require_fixed(fixed: FixedTensor, name: str, value: Any) -> None:
    """See that an input holds what was compiled in; of one on a GPU that is taken for granted.

    Parameters
    ----------
    fixed : FixedTensor
        What that is.
    name : str
        The input's.
    value : array or tensor
        What was given for it.

    Raises
    ------
    InputError
        When it holds something else.

    Examples
    --------
    >>> require_fixed(FixedTensor(0, (1, 4, 4)), "grid", np.array([[1, 4, 8]]))
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.InputError: input 'grid' has 8 at [0, 2], where 4 was \
compiled in: what runs depends on it; optimize the model for these numbers, too
    """
    array = _on_this_side(value)
    if array is None:
        return
    given = array.astype(np.int64)
    wanted = np.reshape(fixed.values, given.shape)
    if (given == wanted).all():
        return
    at = np.argwhere(given != wanted)[0].tolist()
    raise InputError(
        f"input '{name}' has {given[tuple(at)]} at {at}, where {wanted[tuple(at)]} was compiled "
        "in: what runs depends on it; optimize the model for these numbers, too",
        value=int(given[tuple(at)]),
    )


def _on_this_side(value: Any) -> np.ndarray | None:
    """The values, where they are in this machine's memory."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if is_torch(value):
        return value.detach().numpy() if value.device.type == "cpu" else None
    if isinstance(value, tvm.runtime.Tensor):
        near = value.device.dlpack_device_type() == _PROCESSOR
        return np.from_dlpack(value) if near else None
    return None
