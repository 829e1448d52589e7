"""CUDA events around calls: through ``pycuda`` where it is installed, through TVM otherwise.

Both record on a stream of their own that does not wait for the legacy default stream
(``cudaStreamNonBlocking``), and make it TVM's current stream, where every backend launches. So
whatever is queued before the first event still runs while the processor launches what comes after
it, even though TVM's evaluator waits for the default stream in between.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from typing import Any, Protocol

import tvm
import tvm_ffi
from tvm import relax

_NON_BLOCKING = 1
"""``CU_STREAM_NON_BLOCKING``."""

_PREPARE = "collage.cost.worker.cuda.prepare"
"""Global function that TVM's evaluator calls before each sample."""

Prepare = Callable[[], None]
"""Puts work in front of what is timed, or waits."""


class CudaTimer(Protocol):
    """Times calls of a virtual machine's ``main``, whose inputs are set.

    Attributes
    ----------
    name : str
        For messages.
    stream : int
        The handle of the stream that everything runs in.
    """

    name: str
    stream: int

    def time(
        self, machine: relax.VirtualMachine, calls: int, samples: int, prepare: Prepare
    ) -> list[float]:
        """Seconds on the device from before the first to after the last call, once per sample.

        Parameters
        ----------
        machine : relax.VirtualMachine
            Its ``main`` is called.
        calls, samples : int
            Calls in a sample; samples.
        prepare : callable
            Runs before each sample, outside the time.

        Returns
        -------
        list of float
            Seconds of all calls of a sample together, not of one.
        """


class PycudaTimer(CudaTimer):
    """Events of ``pycuda``, in the primary context, which is the one that TVM uses.

    Raises
    ------
    ImportError
        When ``pycuda`` is not installed.
    """

    name = "pycuda"

    def __init__(self, device: tvm.runtime.Device) -> None:
        import pycuda.driver as cuda

        cuda.init()
        self._context = cuda.Device(device.index).retain_primary_context()
        self._context.push()
        # A context that is current when the module goes makes pycuda abort the process.
        atexit.register(self._context.pop)
        self._stream = cuda.Stream(_NON_BLOCKING)
        self._begin, self._end = cuda.Event(), cuda.Event()
        self.stream = int(self._stream.handle)
        make_current(device, self.stream)

    def time(
        self, machine: relax.VirtualMachine, calls: int, samples: int, prepare: Prepare
    ) -> list[float]:
        """Seconds of each sample, between two events around its calls."""
        seconds = []
        for _ in range(samples):
            prepare()
            self._begin.record(self._stream)
            for _ in range(calls):
                machine.invoke_stateful("main")
            self._end.record(self._stream)
            self._end.synchronize()
            seconds.append(1e-3 * self._begin.time_till(self._end))
        return seconds


class TvmTimer(CudaTimer):
    """The events that TVM's time evaluator records; it makes one call more than it times.

    Parameters
    ----------
    device : tvm.runtime.Device
        A GPU.
    stream : int, optional
        Address of the CUDA stream to time on; by default a new one, which becomes TVM's.
    """

    name = "TVM"

    def __init__(self, device: tvm.runtime.Device, stream: int | None = None) -> None:
        self._device = device
        if stream is None:
            created = device.create_raw_stream()
            stream = created.value if isinstance(created, ctypes.c_void_p) else created
            make_current(device, int(stream or 0))
        self.stream = int(stream or 0)

    def time(
        self, machine: relax.VirtualMachine, calls: int, samples: int, prepare: Prepare
    ) -> list[float]:
        """Seconds of each sample, from what the evaluator says of one call."""
        tvm_ffi.register_global_func(_PREPARE, lambda *_: prepare(), override=True)
        evaluator = machine.time_evaluator(
            "invoke_stateful", self._device, number=calls, repeat=samples, f_preproc=_PREPARE
        )
        return [calls * float(per_call_sec) for per_call_sec in evaluator("main").results]


def open_timer(device: tvm.runtime.Device) -> CudaTimer:
    """The better timer of those that are installed."""
    try:
        return PycudaTimer(device)
    except ImportError:
        return TvmTimer(device)


def make_current(device: tvm.runtime.Device, stream: int) -> None:
    """Let TVM, and every backend, launch in this stream from now on.

    Parameters
    ----------
    device : tvm.runtime.Device
        Of the stream.
    stream : int
        Its handle.
    """
    set_stream: Any = tvm_ffi.use_raw_stream(device, stream).__enter__
    set_stream()
