"""What identifies the device that a measurement was made on."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from collage.backends.base import NUM_THREADS_ALL
from collage.backends.errors import TargetError

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Device:
    """A device's fingerprint; any difference makes measurements incomparable.

    Attributes
    ----------
    kind : str
        ``cpu``; ``cuda`` is to come and will take its name and driver from the driver API.
    name : str
        The model's name, as the system gives it.
    cores : int
        Cores that this process may use.
    features : str
        A digest of the instruction-set extensions: the same model may show fewer of them inside a
        virtual machine.
    driver : str
        ``none`` on a CPU.
    """

    kind: str
    name: str
    cores: int
    features: str
    driver: str = "none"

    def __str__(self) -> str:
        return f"{self.name}, {self.cores} cores"


def detect(kind: str = "cpu") -> Device:
    """The device of that kind on this machine.

    Raises
    ------
    TargetError
        When this machine cannot measure on such a device.
    """
    if kind != "cpu":
        raise TargetError(f"measuring on '{kind}' devices is not possible here", value=kind)
    fields = _cpuinfo()
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = " ".join(sorted((fields.get("flags") or fields.get("features") or "").split()))
    digest = hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:12]
    return Device("cpu", " ".join(name.split()), available_cores(), digest)


def available_cores() -> int:
    """Cores that this process may use, which is also what OpenMP takes by default."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_threads(num_threads: int) -> int:
    """The number of threads that ``num_threads`` stands for here."""
    return available_cores() if num_threads == NUM_THREADS_ALL else num_threads


def _cpuinfo() -> dict[str, str]:
    """The first processor's fields, with lower-case names; empty where there is no such file."""
    if not _CPUINFO.exists():
        return {}
    fields: dict[str, str] = {}
    for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            break
        fields[name.strip().lower()] = value.strip()
    return fields
