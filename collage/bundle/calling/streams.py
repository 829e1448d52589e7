"""A caller's CUDA stream: a call comes after what the stream holds, and before what it gets next.

Compiled models run on CUDA's default stream: on no other one are TVM's own copies in order with
their kernels. So that stream waits for the caller's before a call and the caller's for it after the
call, by events; the host waits for neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import tvm
import tvm_ffi

from collage.backends.contract.errors import InputError
from collage.bundle.calling.tensors import is_torch

_CUDA = tvm.cuda().dlpack_device_type()

_DEFAULT = 0
"""The handle of CUDA's default stream."""


def stream_handle(stream: Any, values: Sequence[Any], device: tvm.runtime.Device) -> int | None:
    """The handle of the stream that a call is to be in order with.

    Parameters
    ----------
    stream : int or object or None
        A ``cudaStream_t`` as a number, or a stream of PyTorch's or of any library whose streams
        have ``__cuda_stream__``.
    values : sequence
        The call's inputs: where no stream is given and one of them is PyTorch's tensor on a GPU, it
        is the stream that is PyTorch's current one.
    device : tvm.runtime.Device
        Where the bundle runs.

    Returns
    -------
    int or None
        None where nobody has said so.

    Raises
    ------
    InputError
        When it is no stream, or the device has none.

    Examples
    --------
    >>> stream_handle(None, [], tvm.cpu()) is None
    True
    >>> stream_handle(7, [], tvm.cpu())
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.InputError: stream=7: the bundle is for a CPU, ...
    """
    if device.dlpack_device_type() != _CUDA:
        if stream is not None:
            raise InputError(
                f"stream={stream}: the bundle is for a CPU, which has no streams: leave it out",
                value=stream,
            )
        return None
    if stream is None:
        for value in values:
            if is_torch(value) and value.is_cuda:
                return int(sys.modules["torch"].cuda.current_stream(device.index).cuda_stream)
        return None
    if hasattr(stream, "cuda_stream"):
        return int(stream.cuda_stream)
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    raise InputError(
        f"stream must be a cudaStream_t as a number or a CUDA stream of PyTorch's, not {stream!r}",
        value=stream,
    )


def is_in_order(device: tvm.runtime.Device, stream: int, values: Sequence[Any]) -> bool:
    """Whether a call is in order as it is, so that :func:`in_order` need not be asked: it takes
    longer than the kernels of a small network.

    Parameters
    ----------
    device : tvm.runtime.Device
        Whose stream it is.
    stream : int
        Its handle.
    values : sequence
        The call's inputs.

    Returns
    -------
    bool
        Whether everybody is on CUDA's default stream.
    """
    return (
        stream == _DEFAULT
        and int(tvm_ffi.get_raw_stream(device)) == _DEFAULT
        and isinstance(_of_torch(device, stream, values), nullcontext)
    )


@contextmanager
def in_order(
    device: tvm.runtime.Device, stream: int, values: Sequence[Any]
) -> Iterator[Callable[[], None]]:
    """Everything in it comes after what the stream holds now, and before what it is given later.

    Parameters
    ----------
    device, stream
        As :func:`is_in_order` takes them.
    values : sequence
        The call's inputs: where PyTorch brings one in order, it does so on the stream.

    Returns
    -------
    context manager
        Gives what is to be called when the inputs are in place and before any kernel is launched:
        what PyTorch brought in order, it did on the stream, and handed on without waiting for it.
    """
    with tvm_ffi.use_raw_stream(device, _DEFAULT), _of_torch(device, stream, values):
        if stream == _DEFAULT:
            yield _nothing
            return
        wait = tvm.get_global_func("runtime.Device_StreamSyncFromTo")
        wait(device, stream, _DEFAULT)
        try:
            yield partial(wait, device, stream, _DEFAULT)
        finally:
            wait(device, _DEFAULT, stream)


def _nothing() -> None:
    """Whoever is on one stream is in order."""


def _of_torch(
    device: tvm.runtime.Device, stream: int, values: Sequence[Any]
) -> AbstractContextManager[Any]:
    if not any(is_torch(value) and value.is_cuda for value in values):
        return nullcontext()
    cuda, index = sys.modules["torch"].cuda, device.index
    if cuda.current_stream(index).cuda_stream == stream:
        return nullcontext()
    default = stream == _DEFAULT
    on = cuda.default_stream(index) if default else cuda.ExternalStream(stream, device=index)
    made: AbstractContextManager[Any] = cuda.stream(on)
    return made
