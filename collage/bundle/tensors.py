"""Arrays and tensors of others as TVM's, over the same memory where it can be used as it lies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

ALIGNMENT_BYTES = 64
"""TVM's generated code loads vectors with this alignment."""


def is_torch(value: Any) -> bool:
    """Whether this is a tensor of PyTorch's, which is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_tvm(value: Any, device: tvm.runtime.Device) -> tvm.runtime.Tensor:
    """A tensor of TVM's on a device with the value's content.

    Parameters
    ----------
    value : array or tensor
        Of numpy, or anything that has DLPack.
    device : tvm.runtime.Device
        Where it is needed.
    """
    if isinstance(value, np.ndarray | np.generic):
        # Not by ascontiguousarray, which makes a vector of a scalar.
        return tvm.runtime.tensor(np.asarray(value, order="C"), device)
    on_processor = device.dlpack_device_type() == tvm.cpu().dlpack_device_type()
    if is_torch(value):
        value = value.detach().contiguous().resolve_conj().resolve_neg()
        if on_processor and value.data_ptr() % ALIGNMENT_BYTES:
            value = value.clone()
        tensor = tvm.runtime.from_dlpack(value)
        return tensor if tensor.device == device else tensor.copyto(device)
    tensor = tvm.runtime.from_dlpack(value)
    if tensor.device != device or not tensor.is_contiguous():
        return tvm.runtime.tensor(tensor.numpy(), device)
    if not on_processor:
        return tensor
    aligned = np.from_dlpack(value).ctypes.data % ALIGNMENT_BYTES == 0
    return tensor if aligned else tvm.runtime.tensor(tensor.numpy())


def as_given(
    results: Sequence[tvm.runtime.Tensor], values: Sequence[Any], constants: Sequence[int] = ()
) -> list[Any]:
    """Results as tensors of whoever's the inputs were: PyTorch's over the memory that was written,
    numpy's arrays, or TVM's own where inputs were of several kinds.

    Parameters
    ----------
    results : sequence of tvm.runtime.Tensor
        What came out.
    values : sequence
        What was given.
    constants : sequence of int
        Places of results that are the compiled code's own, which nobody may write into.
    """
    if all(isinstance(value, np.ndarray | np.generic) for value in values):
        return [tensor.numpy() for tensor in results]
    if any(is_torch(value) for value in values):
        torch = sys.modules["torch"]
        # A model that gives its input, or one result twice, must not make its callers share it.
        taken = {value.data_ptr() for value in values if is_torch(value)}
        found = []
        for place, result in enumerate(results):
            tensor = torch.from_dlpack(result)
            if place in constants or tensor.data_ptr() in taken:
                tensor = tensor.clone()
            taken.add(tensor.data_ptr())
            found.append(tensor)
        return found
    return list(results)


def on_host(value: Any) -> np.ndarray:
    """An array or tensor as numpy's.

    Parameters
    ----------
    value : array or tensor
        Of numpy, or anything that has DLPack.
    """
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    array: np.ndarray = to_tvm(value, tvm.cpu()).numpy()
    return array
