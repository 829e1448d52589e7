"""A device's clocks, limits and users, read through NVIDIA's management library and never set.

NVIDIA, NVML API Reference. Reading needs no privilege; where the library or the right is missing,
records say nothing about clocks.
"""

from __future__ import annotations

import ctypes
from typing import Any

from collage.cost.base import Clocks

_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_SM, _MEMORY = 1, 2
"""``nvmlClockType_t``: of the multiprocessors, of the memory."""
_TOO_SMALL = 7
"""``NVML_ERROR_INSUFFICIENT_SIZE``: how many there are was written all the same."""
_MIG_ON = 1


class _Process(ctypes.Structure):
    """``nvmlProcessInfo_t``, as the second and third version of the functions write it."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Utilization(ctypes.Structure):
    """``nvmlUtilization_t``, percent of the last sample period."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Slice(ctypes.Structure):
    """``nvmlDeviceAttributes_t``."""

    _fields_ = (
        ("multiprocessors", ctypes.c_uint),
        ("copy_engines", ctypes.c_uint),
        ("decoders", ctypes.c_uint),
        ("encoders", ctypes.c_uint),
        ("jpeg_decoders", ctypes.c_uint),
        ("optical_flow", ctypes.c_uint),
        ("gpu_slices", ctypes.c_uint),
        ("compute_slices", ctypes.c_uint),
        ("memory_mib", ctypes.c_ulonglong),
    )


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

        Returns
        -------
        Management or None
            None where the library is missing, too old, or does not start.
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

    def conditions(self, mig_uuid: str) -> tuple[str, ...]:
        """What is unusual about how it runs: an operator's limits, a part of a GPU.

        Clocks that were locked (``nvidia-smi -lgc``) cannot be read; the clocks that a record
        holds show them, and the reference set finds them.

        Parameters
        ----------
        mig_uuid : str
            What names the slice of the GPU, if this is one.
        """
        found = []
        limit = self._number("nvmlDeviceGetEnforcedPowerLimit")
        usual = self._number("nvmlDeviceGetPowerManagementDefaultLimit")
        if limit is not None and usual is not None and limit != usual:
            found.append(f"power limit {limit / 1000:g} W")
        for kind, name in ((_SM, "SM"), (_MEMORY, "memory")):
            chosen = self._number("nvmlDeviceGetApplicationsClock", kind)
            default = self._number("nvmlDeviceGetDefaultApplicationsClock", kind)
            if chosen is not None and default is not None and chosen != default:
                found.append(f"{name} clock set to {chosen} MHz")
        if part := self._slice(mig_uuid):
            found.append(part)
        return tuple(found)

    def busy_percent(self) -> int | None:
        """How much of the last sample period kernels ran in; None when it cannot be read, as of a
        slice that MIG makes."""
        use = _Utilization()
        read = self._asked("nvmlDeviceGetUtilizationRates", ctypes.byref(use))
        return int(use.gpu) if read else None

    def processes(self) -> list[int]:
        """The numbers of the processes that have a context on it, as far as they are in sight."""
        name, count = "nvmlDeviceGetComputeRunningProcesses_v3", ctypes.c_uint(0)
        function = getattr(self._library, name, None)
        if not self._found or function is None:
            return []
        if function(self._handle, ctypes.byref(count), None) != _TOO_SMALL:
            return []
        count = ctypes.c_uint(2 * count.value)  # More may come meanwhile.
        found = (_Process * count.value)()
        read = self._asked(name, ctypes.byref(count), found)
        return [one.pid for one in found[: count.value]] if read else []

    def _slice(self, mig_uuid: str) -> str:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        read = self._asked("nvmlDeviceGetMigMode", ctypes.byref(current), ctypes.byref(pending))
        if not read or current.value != _MIG_ON:
            return ""
        handle, part = ctypes.c_void_p(), _Slice()
        library = self._library
        try:
            found = (
                library.nvmlDeviceGetHandleByUUID(mig_uuid.encode(), ctypes.byref(handle))
                == library.nvmlDeviceGetAttributes_v2(handle, ctypes.byref(part))
                == _SUCCESS
            )
        except AttributeError:
            found = False
        if not found:
            return "MIG slice"
        return (
            f"MIG slice of {part.gpu_slices} with {part.compute_slices} to compute, "
            f"{part.memory_mib} MiB"
        )

    def _number(self, function: str, *arguments: int) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._asked(function, *arguments, ctypes.byref(value)) else None

    def _asked(self, function: str, *arguments: Any) -> bool:
        """Whether a function of the device answered; older libraries lack some."""
        found = getattr(self._library, function, None)
        return self._found and found is not None and found(self._handle, *arguments) == _SUCCESS

    def _clock(self, kind: int) -> int | None:
        return self._number("nvmlDeviceGetClockInfo", kind)
