"""Arrays and tensors of others as TVM's, over the same memory where it can be used as it lies."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from collage.backends.contract.errors import InputError

ALIGNMENT_BYTES = 64
"""TVM's generated code loads vectors with this alignment."""

_PLAIN_KINDS = "biufc"
"""Kinds of numpy's own types; extension types such as bfloat16 cannot be handed over."""

_PROCESSOR = tvm.cpu().dlpack_device_type()

_NUMPY_TYPES = frozenset(
    ["bool", *(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64))]
) | frozenset(f"float{bits}" for bits in (16, 32, 64))


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

    Returns
    -------
    tvm.runtime.Tensor
        Over the value's own memory where that will do, else over a copy.

    Raises
    ------
    InputError
        When it does not lie in order, and not where numpy could bring it in order.

    Examples
    --------
    On a CPU an array that is contiguous, writable and aligned to 64 bytes is used as it lies:

    >>> array = empty_array((2, 3), "float32")
    >>> to_tvm(array, tvm.cpu()).data_ptr() == array.ctypes.data
    True
    """
    on_processor = device.dlpack_device_type() == _PROCESSOR
    tensor_there = isinstance(value, tvm.runtime.Tensor) and value.device == device
    if tensor_there and not on_processor and value.is_contiguous():
        return value
    if isinstance(value, np.ndarray) and not value.size:
        # Its strides may be any, and TVM's kernels look at them.
        return tvm.runtime.empty(value.shape, str(value.dtype), device)
    if isinstance(value, np.ndarray | np.generic):
        if on_processor and value.dtype.kind in _PLAIN_KINDS and value.dtype.isnative:
            usable = isinstance(value, np.ndarray) and _is_usable(value)
            # A copy by numpy: TVM's own takes 25 us, more than many a small network.
            return tvm_ffi.from_dlpack(value if usable else _usable_copy(value))
        # Not by ascontiguousarray, which makes a vector of a scalar.
        return tvm.runtime.tensor(np.asarray(value, order="C"), device)
    if is_torch(value):
        if not value.numel():
            kind = str(value.dtype).removeprefix("torch.")
            return tvm.runtime.empty(tuple(value.shape), kind, device)
        value = value.detach().contiguous().resolve_conj().resolve_neg()
        if on_processor and value.data_ptr() % ALIGNMENT_BYTES:
            value = value.clone()
        tensor = tvm.runtime.from_dlpack(value)
        return tensor if tensor.device == device else tensor.copyto(device)
    # Not by TVM's own function, which refuses what does not lie as its kernels want it.
    tensor = value if isinstance(value, tvm.runtime.Tensor) else tvm_ffi.from_dlpack(value)
    if not tensor.is_contiguous():
        if not _is_plain(tensor):
            raise InputError(
                f"a tensor of {type(value).__name__} does not lie in order in memory, and its "
                "elements cannot be moved here: give a contiguous copy",
                value=type(value).__name__,
            )
        return tvm.runtime.tensor(np.ascontiguousarray(np.from_dlpack(tensor)), device)
    if tensor.device != device:
        return tensor.copyto(device)
    begin = np.from_dlpack(tensor).ctypes.data if _is_plain(tensor) else tensor.data_ptr()
    unaligned = on_processor and begin % ALIGNMENT_BYTES
    return tensor.copyto(device) if unaligned else tensor


def seen_by_numpy(value: Any) -> np.ndarray | None:
    """A tensor of TVM's, or an array, as numpy's over the same memory: what it is like is asked of
    that in a tenth of the time.

    Parameters
    ----------
    value : array or tensor
        Whatever was given.

    Returns
    -------
    ndarray or None
        None where numpy cannot look at the memory, and for what is of others.

    Examples
    --------
    >>> seen_by_numpy(tvm.runtime.tensor(np.array([1, 2]))), seen_by_numpy([1, 2])
    (array([1, 2]), None)
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, tvm.runtime.Tensor):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError):
            return None
    return None


def as_it_lies(value: Any, array: np.ndarray) -> tvm.runtime.Tensor | None:
    """What kernels on a processor take without a copy; None where that will not do.

    Parameters
    ----------
    value : ndarray or tvm.runtime.Tensor
        What was given.
    array : ndarray
        That, see :func:`seen_by_numpy`; of a type of numpy's own.

    Returns
    -------
    tvm.runtime.Tensor or None
        Over the same memory.
    """
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable and array.size):
        return None
    tensor = tvm_ffi.from_dlpack(array)
    if tensor.data_ptr() % ALIGNMENT_BYTES:
        return None
    return tensor if value is array else value


def of_the_caller(
    results: Sequence[tvm.runtime.Tensor],
    inputs: Sequence[tvm.runtime.Tensor],
    borrowed: Collection[int] | None,
    sizes: tuple[Sequence[int], Sequence[int]],
) -> list[tvm.runtime.Tensor]:
    """The results of a call as tensors that its caller may write into.

    Parameters
    ----------
    results : sequence of tvm.runtime.Tensor
        What the call gave.
    inputs : sequence of tvm.runtime.Tensor
        What it was given: what shares their memory is copied, and so is a second result in the same
        memory.
    borrowed : collection of int or None
        Which results the model keeps, see :func:`collage.bundle.borrowed_outputs`; where it is not
        known, all are copied.
    sizes : tuple of sequence of int
        Bytes of each of the inputs, and of each of the results.

    Returns
    -------
    list of tvm.runtime.Tensor
        In their order; those that share memory with anything else are copies.

    Examples
    --------
    >>> given, made = tvm.runtime.tensor(np.ones(3, "float32")), tvm.runtime.tensor(np.ones(2))
    >>> same, own = of_the_caller([given, made], [given], borrowed=(), sizes=([12], [12, 16]))
    >>> same.data_ptr() == given.data_ptr(), own.data_ptr() == made.data_ptr()
    (False, True)
    """
    taken = []
    for tensor, size in zip(inputs, sizes[0], strict=True):
        begin = tensor.data_ptr()
        taken.append((begin, begin + size))
    own = []
    for place, (tensor, size) in enumerate(zip(results, sizes[1], strict=True)):
        begin = tensor.data_ptr()
        end = begin + size
        copied = borrowed is None or place in borrowed
        for theirs, theirs_end in taken:
            copied = copied or (begin < theirs_end and theirs < end)
        taken.append((begin, end))
        own.append(tensor.copyto(tensor.device) if copied else tensor)
    return own


def as_given(results: Sequence[tvm.runtime.Tensor], values: Sequence[Any]) -> list[Any]:
    """Results as tensors of whoever's the inputs were, over the memory that was written: numpy's
    arrays, PyTorch's where one input was, or TVM's own where inputs were of other kinds.

    Parameters
    ----------
    results : sequence of tvm.runtime.Tensor
        The caller's, see :func:`of_the_caller`.
    values : sequence
        What was given.

    Returns
    -------
    list of object
        In the order of the results.
    """
    others = [value for value in values if not isinstance(value, np.ndarray | np.generic)]
    if not others:
        return [np.from_dlpack(one) if _is_plain(one) else one.numpy() for one in results]
    for value in others:
        if is_torch(value):
            return as_torch(results)
    return list(results)


def as_torch(results: Sequence[tvm.runtime.Tensor]) -> list[Any]:
    """Results as PyTorch's tensors over the same memory.

    Examples
    --------
    >>> import torch
    >>> as_torch([tvm.runtime.tensor(np.ones(2, np.float32))])
    [tensor([1., 1.])]
    """
    # The capsule itself: asked for it, PyTorch first finds out about streams, which takes 10 us.
    from_dlpack = sys.modules["torch"].utils.dlpack.from_dlpack
    return [from_dlpack(result.__dlpack__()) for result in results]


def on_host(value: Any) -> np.ndarray:
    """An array or tensor as numpy's."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    array: np.ndarray = to_tvm(value, tvm.cpu()).numpy()
    return array


def empty_array(shape: Sequence[int], dtype: str) -> np.ndarray:
    """An array that a bundle takes without a copy: aligned as TVM's kernels want it.

    Parameters
    ----------
    shape : sequence of int
        Its extents.
    dtype : str
        As numpy names it.

    Returns
    -------
    ndarray
        Its elements are whatever was there.

    Examples
    --------
    >>> array = empty_array((3, 5), "float32")
    >>> array.shape, array.ctypes.data % ALIGNMENT_BYTES
    ((3, 5), 0)
    """
    return _empty(tuple(shape), np.dtype(dtype))


def numpy_type(dtype: str) -> np.dtype[Any] | None:
    """The type of numpy's own that has a name; None where there is none, as for bfloat16.

    Examples
    --------
    >>> numpy_type("float16"), numpy_type("bfloat16")
    (dtype('float16'), None)
    """
    return np.dtype(dtype) if dtype in _NUMPY_TYPES else None


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    raw = np.empty(math.prod(shape) * dtype.itemsize + ALIGNMENT_BYTES, np.uint8)
    begin = -raw.ctypes.data % ALIGNMENT_BYTES
    return np.ndarray(shape, dtype, raw, begin)


def _usable_copy(value: np.ndarray | np.generic) -> np.ndarray:
    copy = _empty(value.shape, value.dtype)
    np.copyto(copy, value)
    return copy


def _is_usable(array: np.ndarray) -> bool:
    """Whether an array of a plain type may be handed over; DLPack's older form could not say that
    it is read-only."""
    flags = array.flags
    usable = flags.c_contiguous and flags.writeable
    return bool(usable and array.ctypes.data % ALIGNMENT_BYTES == 0)


def _is_plain(tensor: tvm.runtime.Tensor) -> bool:
    """Whether numpy can look at the memory itself."""
    on_cpu = tensor.device.dlpack_device_type() == _PROCESSOR
    return bool(on_cpu and str(tensor.dtype) in _NUMPY_TYPES)
