"""What identifies the device that a measurement was made on."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract.base import NUM_THREADS_ALL, BackendTarget
from collage.backends.contract.errors import MeasurementError, TargetError

_CPUINFO = Path("/proc/cpuinfo")
_CUDA_KEY = re.compile(r"(.+), (\d+) SMs, (sm_\d+), (\d+) MiB")


@dataclass(frozen=True)
class Device:
    """A device's fingerprint; any difference makes measurements incomparable.

    Attributes
    ----------
    kind : str
        ``cpu`` or ``cuda``.
    name : str
        The model's name, as the system or the driver gives it.
    cores : int
        Cores that this process may use; of a GPU its multiprocessors.
    features : str
        A digest of the instruction-set extensions: the same model may show fewer of them inside a
        virtual machine. Of a GPU its architecture, ``sm_90``.
    driver : str
        ``none`` on a CPU.
    memory_mib : int
        Of a GPU.
    """

    kind: str
    name: str
    cores: int
    features: str
    driver: str = "none"
    memory_mib: int = 0

    def __str__(self) -> str:
        if self.kind == "cpu":
            return f"{self.name}, {self.cores} cores"
        return f"{self.name}, {self.cores} multiprocessors"

    @property
    def key(self) -> str:
        """What names it in the log."""
        if self.kind == "cpu":
            return f"{self.name}, {self.cores} cores, isa {self.features}"
        return f"{self.name}, {self.cores} SMs, {self.features}, {self.memory_mib} MiB"

    @classmethod
    def from_key(cls, key: str, driver: str) -> Device | None:
        """The GPU that a log names by its :attr:`key`; None where that is a CPU's."""
        found = _CUDA_KEY.fullmatch(key)
        if found is None:
            return None
        name, cores, features, memory_mib = found.groups()
        return cls("cuda", name, int(cores), features, driver, int(memory_mib))


def detect(kind: str = "cpu") -> Device:
    """The device of that kind on this machine; of several GPUs the first.

    Raises
    ------
    TargetError
        When this machine cannot measure on such a device.
    """
    if kind == "cuda":
        return _detect_cuda()
    if kind != "cpu":
        raise TargetError(f"measuring on '{kind}' devices is not possible", value=kind)
    fields = _cpuinfo()
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = " ".join(sorted((fields.get("flags") or fields.get("features") or "").split()))
    digest = hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:12]
    return Device("cpu", " ".join(name.split()), available_cores(), digest)


def _detect_cuda() -> Device:
    from collage.cost.device.cuda.facts import read_facts

    try:
        facts = read_facts()
    except MeasurementError as err:
        raise TargetError(
            f"nothing can be measured for target 'cuda' on this machine: {err}", value="cuda"
        ) from err
    features = "sm_" + facts.compute_capability.replace(".", "")
    memory_mib = facts.memory_bytes >> 20
    return Device("cuda", facts.name, facts.multiprocessors, features, facts.driver, memory_mib)


def device_kind(targets: Iterable[BackendTarget]) -> str:
    """The kind of device that targets are for: ``cpu`` or ``cuda``.

    Raises
    ------
    TargetError
        When they are for devices of several kinds.
    """
    kinds = {"cuda" if t.device.kind.name == "cuda" else "cpu" for t in targets}
    if len(kinds) > 1:
        raise TargetError("targets of several kinds of devices cannot be measured together")
    return kinds.pop() if kinds else "cpu"


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
