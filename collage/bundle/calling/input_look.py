"""What a call is given, looked at once: a network may take less time than the questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

from collage.backends.contract.errors import InputError
from collage.bundle.calling.tensors import as_it_lies, numpy_type, seen_by_numpy, to_tvm
from collage.bundle.signature import FunctionEntry
from collage.tensor_info import TensorInfo

Arrays = list[np.ndarray | None]
"""What was given, as numpy sees it; None where it does not."""


class InputLook:
    """Looks at what is given for a function's inputs.

    Each question to a tensor of TVM's (its type, where it lies) takes most of a microsecond, and to
    numpy's view of it next to nothing.

    Parameters
    ----------
    entry : FunctionEntry
        What is called.
    device : tvm.runtime.Device
        Where it runs.

    Examples
    --------
    >>> from collage.bundle.signature import Variant
    >>> from collage.tensor_info import TensorInfo
    >>> x = TensorInfo((2,), "float32", "x")
    >>> look = InputLook(FunctionEntry("main", (Variant("main", (x,), (x,)),)), tvm.cpu())
    >>> arrays, shapes = look.at([np.ones(2, np.float32)])
    >>> shapes, look.tensors([np.ones(2, np.float32)], arrays)[0].shape
    ([(2,)], (2,))
    """

    def __init__(self, entry: FunctionEntry, device: tvm.runtime.Device) -> None:
        self._entry, self._device = entry, device
        self._on_processor = device.dlpack_device_type() == tvm.cpu().dlpack_device_type()
        self._types = [numpy_type(info.dtype) for info in entry.inputs]

    def at(self, values: Sequence[Any]) -> tuple[Arrays, list[tuple[int, ...]]]:
        """The inputs as numpy sees them, and their shapes.

        Raises
        ------
        InputError
            When one is no array, or of another dtype.
        """
        arrays = [self._array(value, index) for index, value in enumerate(values)]
        shapes = [
            self._shape(value, index) if array is None else array.shape
            for index, (value, array) in enumerate(zip(values, arrays, strict=True))
        ]
        return arrays, shapes

    def tensors(self, values: Sequence[Any], arrays: Arrays) -> list[tvm.runtime.Tensor]:
        """The inputs as kernels take them, without a copy where they lie right.

        Parameters
        ----------
        values : sequence
            One for each input.
        arrays : list of ndarray or None
            What was seen of them; None for what is not what it was.

        Returns
        -------
        list of tvm.runtime.Tensor
            In their order.
        """
        found = []
        for value, array in zip(values, arrays, strict=True):
            tensor = None if array is None else as_it_lies(value, array)
            found.append(to_tvm(value, self._device) if tensor is None else tensor)
        return found

    def _array(self, value: Any, index: int) -> np.ndarray | None:
        """What lies on this processor, of an input's type where that is one of numpy's own."""
        wanted = self._types[index]
        if wanted is None or not self._on_processor:
            return None
        array = seen_by_numpy(value)
        return array if array is not None and array.dtype is wanted else None

    def _shape(self, value: Any, index: int) -> tuple[int, ...]:
        """The shape of what was given for an input, which must be an array of its dtype."""
        # Names of types are slow to make: 5 us each.
        if isinstance(value, np.ndarray) and value.dtype is self._types[index]:
            return tuple(value.shape)
        info = self._entry.inputs[index]
        if isinstance(value, tvm.runtime.Tensor) and value.dtype == info.dtype:
            return tuple(value.shape)
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            raise InputError(
                f"input '{info.name}' must be an array, {self._entry.show(index)}, "
                f"not a {type(value).__name__}",
                value=type(value).__name__,
            )
        shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
        if dtype != info.dtype:
            raise InputError(
                f"input '{info.name}' must be {self._entry.show(index)}, not {dtype}{list(shape)}",
                value=shape,
            )
        return shape


def require_in_place(
    infos: Sequence[TensorInfo],
    values: Sequence[Any],
    tensors: Sequence[tvm.runtime.Tensor],
    *,
    padded: bool,
) -> None:
    """See that kernels look at what was given where it lies.

    Parameters
    ----------
    infos : sequence of TensorInfo
        The inputs.
    values, tensors : sequence
        What was given for each, and what kernels get.
    padded : bool
        Whether these are longer.

    Raises
    ------
    InputError
        Names the first that was copied.

    Examples
    --------
    >>> array, info = np.ones(3, np.float32)[1:], TensorInfo((2,), "float32", "x")
    >>> require_in_place([info], [array], [to_tvm(array, tvm.cpu())], padded=False)
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.InputError: input 'x' would be copied in each call, so ...
    """
    for info, value, tensor in zip(infos, values, tensors, strict=True):
        if padded or not (value is tensor or _address(value) == tensor.data_ptr()):
            raise InputError(
                f"input '{info.name}' would be copied in each call, so none can be bound to it: "
                "give an array of empty_inputs(), filled",
                value=info.name,
            )


def _address(value: Any) -> int | None:
    array = seen_by_numpy(value)
    if array is not None:
        return int(array.ctypes.data)
    return int(value.data_ptr()) if hasattr(value, "data_ptr") else None
