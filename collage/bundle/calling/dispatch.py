"""Which of a function's variants a call is for, and arrays padded for it and cut again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from collage.backends.contract.errors import InputError
from collage.bundle.signature import FunctionEntry, Padding, Variant, show_extents

Shape = tuple[int, ...]


def choose(entry: FunctionEntry, shapes: Sequence[Shape]) -> tuple[Variant, int | None]:
    """The variant for inputs of some shapes; and the extent that they have, if they are padded.

    Parameters
    ----------
    entry : FunctionEntry
        What is called.
    shapes : sequence of tuple of int
        Of its inputs.

    Returns
    -------
    tuple[Variant, int | None]
        The extent is None where the inputs have the variant's own shapes.

    Raises
    ------
    InputError
        When there is none; names input, axis and what would do.

    Examples
    --------
    >>> from collage.tensor_info import TensorInfo
    >>> infos = [TensorInfo((rows, 8), "float32", "x") for rows in (1, 4)]
    >>> variants = tuple(Variant(f"main_{x.shape[0]}", (x,), (x,)) for x in infos)
    >>> exact = FunctionEntry("main", variants)
    >>> choose(exact, [(4, 8)])[0].entry
    'main_4'
    >>> choose(exact, [(3, 8)])
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.InputError: input 'x' must be float32[1|4, 8], not ...
    >>> padded = FunctionEntry("main", variants, Padding(((0, 0),), ((0, 0),), (2, 3)))
    >>> variant, extent = choose(padded, [(3, 8)])
    >>> variant.entry, extent
    ('main_4', 3)
    """
    given = list(shapes)
    for variant in entry.variants:
        if [info.shape for info in variant.inputs] == given:
            return variant, None
    padding = entry.padding
    if padding is not None:
        extents = {_extent(given, place) for place in padding.inputs}
        extent = extents.pop()
        if not extents and extent in padding.sizes:
            fitting = [v for v in entry.variants if _fits(v, given, padding, extent)]
            if fitting:
                return min(fitting, key=lambda v: _extent(_shapes(v), padding.inputs[0])), extent
    raise _outside(entry, given)


def pad(array: NDArray[Any], axis: int, extent: int) -> NDArray[Any]:
    """An array with its last slice repeated: what is in it anyway cannot do any harm.

    Parameters
    ----------
    array : ndarray
        Of at least one slice.
    axis : int
        Where it is too short.
    extent : int
        What it is to have there.

    Returns
    -------
    ndarray
        A copy, of the given extent on that axis.

    Examples
    --------
    >>> pad(np.array([[1, 2], [3, 4]]), 0, 3).tolist()
    [[1, 2], [3, 4], [3, 4]]
    """
    indices = np.minimum(np.arange(extent), array.shape[axis] - 1)
    padded: NDArray[Any] = array.take(indices, axis=axis)
    return padded


def cut(array: NDArray[Any], axis: int, extent: int) -> NDArray[Any]:
    """The first slices of an array.

    Parameters
    ----------
    array : ndarray
        Of at least as many.
    axis : int
        Along which.
    extent : int
        How many.

    Returns
    -------
    ndarray
        Contiguous, of the given extent on that axis.
    """
    return np.ascontiguousarray(array[(slice(None),) * axis + (slice(extent),)])


def _shapes(variant: Variant) -> list[Shape]:
    return [info.shape for info in variant.inputs]


def _extent(shapes: Sequence[Shape], place: tuple[int, int]) -> int:
    index, axis = place
    return shapes[index][axis] if axis < len(shapes[index]) else 0


def _fits(variant: Variant, shapes: Sequence[Shape], padding: Padding, extent: int) -> bool:
    """Whether shapes are a variant's but for the padded axes, which are shorter."""
    own = [list(shape) for shape in _shapes(variant)]
    if _extent(_shapes(variant), padding.inputs[0]) < extent:
        return False
    for index, axis in padding.inputs:
        own[index][axis] = extent
    return [tuple(shape) for shape in own] == list(shapes)


def _outside(entry: FunctionEntry, shapes: Sequence[Shape]) -> InputError:
    for index, (info, shape) in enumerate(zip(entry.inputs, shapes, strict=True)):
        given = f"{info.dtype}{list(shape)}"
        head = f"input '{info.name}' must be {entry.show(index)}, not {given}"
        if len(shape) != len(info.shape):
            return InputError(head, value=shape)
        for axis, extent in enumerate(shape):
            allowed = entry.extents(index, axis)
            if extent not in allowed:
                which = f": axis {axis} may be {show_extents(allowed)}, not {extent}"
                return InputError(head + which * (len(allowed) > 1), value=shape)
    listed = ", ".join(
        f"{info.name} {list(shape)}" for info, shape in zip(entry.inputs, shapes, strict=True)
    )
    return InputError(
        f"the inputs' shapes do not go together: {listed}; the same dimension has to have the "
        "same extent everywhere",
        value=tuple(shapes),
    )


def chosen_rows(
    entry: FunctionEntry, outputs: Sequence[tvm.runtime.Tensor], device: tvm.runtime.Device
) -> list[tvm.runtime.Tensor]:
    """Outputs with the rows that there are, without the numbers of them.

    Parameters
    ----------
    entry : FunctionEntry
        What was called.
    outputs : sequence of tvm.runtime.Tensor
        As many rows as there may be.
    device : tvm.runtime.Device
        Where they lie.

    Returns
    -------
    list of tvm.runtime.Tensor
        Copies of what was cut.
    """
    arrays = dict(enumerate(outputs))
    for rows in entry.rows:
        count = int(arrays.pop(rows.count).numpy().item())
        for index, axis in rows.outputs:
            part = cut(arrays[index].numpy(), axis, count)
            arrays[index] = tvm.runtime.tensor(part, device)
    return list(arrays.values())


def without_padding(
    entry: FunctionEntry,
    outputs: Sequence[tvm.runtime.Tensor],
    extent: int,
    device: tvm.runtime.Device,
) -> list[tvm.runtime.Tensor]:
    """Outputs of padded inputs with the extent that these had.

    Parameters
    ----------
    entry : FunctionEntry
        What was called.
    outputs : sequence of tvm.runtime.Tensor
        Of a variant's extent.
    extent : int
        Of the inputs before they were padded.
    device : tvm.runtime.Device
        Where they lie.

    Returns
    -------
    list of tvm.runtime.Tensor
        Copies of what was cut.
    """
    assert entry.padding is not None
    found = list(outputs)
    for index, axis in entry.padding.outputs:
        found[index] = tvm.runtime.tensor(cut(found[index].numpy(), axis, extent), device)
    return found
