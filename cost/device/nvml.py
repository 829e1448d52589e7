"""A device's clocks, read through NVIDIA's management library and never set.

NVIDIA, NVML API Reference. Reading needs no privilege; where the library or the right is missing,
records say nothing about clocks.
"""

from __future__ import annotations

import ctypes

from collage.cost.base import Clocks

_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_SM, _MEMORY = 1, 2
"""``nvmlClockType_t``: of the multiprocessors, of the memory."""


class Management:
    """One device in NVML.

    Parameters
    ----------
    library : ctypes.CDLL
        Initialized.
    pci_bus_id : str
        NVML counts devices in its own order; where a device sits is certain.
    """

    def __init__(self, library: ctypes.CDLL, pci_bus_id: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._found = (
            library.nvmlDeviceGetHandleByPciBusId_v2(
                pci_bus_id.encode(), ctypes.byref(self._handle)
            )
            == _SUCCESS
        )

    @classmethod
    def open(cls, pci_bus_id: str, path: str = _LIBRARY) -> Management | None:
        """The device's management; None where there is none.

        Parameters
        ----------
        pci_bus_id : str
            Where the device sits.
        path : str
            Name or path of the library.
        """
        try:
            library = ctypes.CDLL(path)
            return cls(library, pci_bus_id) if library.nvmlInit_v2() == _SUCCESS else None
        except (OSError, AttributeError):
            return None

    def clocks(self) -> Clocks | None:
        """The clocks now; None when they cannot be read."""
        sm, memory = self._clock(_SM), self._clock(_MEMORY)
        return None if sm is None or memory is None else Clocks(sm, memory)

    def driver_version(self) -> str:
        """The driver's own version, for example ``580.65.06``; empty when it cannot be read."""
        buffer = ctypes.create_string_buffer(80)
        if self._library.nvmlSystemGetDriverVersion(buffer, ctypes.c_uint(80)) != _SUCCESS:
            return ""
        return buffer.value.decode()

    def _clock(self, kind: int) -> int | None:
        mhz = ctypes.c_uint()
        if not self._found:
            return None
        code = self._library.nvmlDeviceGetClockInfo(self._handle, kind, ctypes.byref(mhz))
        return mhz.value if code == _SUCCESS else None
