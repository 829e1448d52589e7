"""The few driver functions that neither TVM nor the timers offer, through ``ctypes``.

NVIDIA, CUDA Driver API. All of them act on the calling thread's context, which TVM's first use of
the device has made the primary one.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from typing import Any

from collage.backends.contract.errors import CollageError, MeasurementError

DRIVER = "libcuda.so.1"
_SUCCESS = 0
_FATAL = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999})
"""Errors after which a context answers nothing but that error: memory faults, traps, asserts,
hangs, broken links. Numbers of ``CUresult``; the runtime library's are the same."""


class CudaError(CollageError):
    """A driver function failed.

    Attributes
    ----------
    value : int
        The ``CUresult``.
    """

    @property
    def is_fatal(self) -> bool:
        """Whether the context is lost, and with it the process's use of the device."""
        return self.value in _FATAL


class CudaDriver:
    """NVIDIA's driver library.

    Parameters
    ----------
    path : str
        Name or path of the library.

    Raises
    ------
    MeasurementError
        When it cannot be loaded.
    """

    def __init__(self, path: str = DRIVER) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as err:
            raise MeasurementError(
                f"NVIDIA's driver library '{path}' cannot be loaded: {err}", value=path
            ) from err
        number, text = ctypes.c_int, ctypes.c_char_p
        self._version = self._function("cuDriverGetVersion", ctypes.POINTER(number))
        self._initialize = self._function("cuInit", ctypes.c_uint)
        self._device = self._function("cuDeviceGet", ctypes.POINTER(number), number)
        self._count = self._function("cuDeviceGetCount", ctypes.POINTER(number))
        self._bus_id = self._function("cuDeviceGetPCIBusId", text, number, number)
        # Of a slice that MIG makes the second version gives the slice's, the first its GPU's.
        self._uuid = self._function("cuDeviceGetUuid_v2", ctypes.c_char * 16, number)
        self._fill = self._function(
            "cuMemsetD32Async", ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p
        )
        self._synchronize = self._function("cuCtxSynchronize")
        self._name = self._function("cuGetErrorName", number, ctypes.POINTER(text))
        self._text = self._function("cuGetErrorString", number, ctypes.POINTER(text))

    def version(self) -> str:
        """The newest CUDA release that the driver supports, for example ``13.0``."""
        value = ctypes.c_int()
        self._check(self._version(ctypes.byref(value)), "cuDriverGetVersion")
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    def count(self) -> int:
        """How many devices this process may see."""
        self._check(self._initialize(0), "cuInit")
        value = ctypes.c_int()
        self._check(self._count(ctypes.byref(value)), "cuDeviceGetCount")
        return value.value

    def pci_bus_id(self, index: int) -> str:
        """Where a device sits, which is how NVML names it: ``0000:1b:00.0``."""
        buffer = ctypes.create_string_buffer(32)
        device = self._handle(index)
        self._check(self._bus_id(buffer, len(buffer), device), "cuDeviceGetPCIBusId")
        return buffer.value.decode()

    def uuid(self, index: int, kind: str = "GPU") -> str:
        """What names a device whichever others a process may see, as ``CUDA_VISIBLE_DEVICES``
        takes it: ``GPU-8b8dcc6e-...``.

        Parameters
        ----------
        index : int
            Among those that this process may see.
        kind : str
            ``MIG`` for a slice of a GPU, which the driver does not tell apart here.

        Returns
        -------
        str
            The kind, a dash, and the UUID in lower case.
        """
        buffer = (ctypes.c_char * 16)()
        self._check(self._uuid(buffer, self._handle(index)), "cuDeviceGetUuid_v2")
        return f"{kind}-{uuid.UUID(bytes=buffer.raw)}"

    def _handle(self, index: int) -> int:
        self._check(self._initialize(0), "cuInit")
        device = ctypes.c_int()
        self._check(self._device(ctypes.byref(device), index), "cuDeviceGet")
        return device.value

    def fill(self, address: int, words: int, stream: int) -> None:
        """Write that many 32-bit zeros to device memory, in a stream's order.

        Parameters
        ----------
        address : int
            Of device memory, a multiple of 4.
        words : int
            How many, of 4 bytes each.
        stream : int
            The stream's handle; 0 for the default one.
        """
        self._check(self._fill(address, 0, words, stream), "cuMemsetD32Async")

    def synchronize(self) -> None:
        """Wait for everything that the context was given to do.

        Raises
        ------
        CudaError
            When some of it failed.
        """
        self._check(self._synchronize(), "cuCtxSynchronize")

    def _check(self, code: int, function: str) -> None:
        if code != _SUCCESS:
            name, text = self._say(self._name, code), self._say(self._text, code)
            raise CudaError(f"{function}: {name or code} ({text or 'no description'})", value=code)

    @staticmethod
    def _say(function: Callable[..., int], code: int) -> str:
        text = ctypes.c_char_p()
        known = function(code, ctypes.byref(text)) == _SUCCESS and text.value is not None
        return text.value.decode() if known and text.value else ""

    def _function(self, name: str, *types: Any) -> Callable[..., int]:
        function = getattr(self._library, name, None)
        if function is None:
            # The stand-in that lets TVM compile without a driver lacks most functions.
            raise MeasurementError(f"the loaded driver library has no '{name}'", value=name)
        function.argtypes = types
        function.restype = ctypes.c_int
        found: Callable[..., int] = function
        return found
