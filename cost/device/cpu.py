"""Measuring on this machine's processor, on which everything else runs too."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Set
from pathlib import Path

import tvm

from collage.backends.contract import NUM_THREADS_ALL, BuildContext
from collage.backends.devices import CPU
from collage.cost.device._base import Device, DevicePolicy
from collage.cost.device.cpu_conditions import ROOT, conditions, numbers

_BUILDERS = 2
_BATCH = 8


class CpuPolicy(DevicePolicy):
    """Held for building too, since the compiler would run on the cores that another one times."""

    kind = CPU
    session = "collage.cost.worker.session:CpuSession"
    has_context = False
    reference_elements = 1 << 21
    reference_extent = 384

    def detect(self) -> Device:
        return cpu_at(ROOT, platform.machine(), _available_processors(), platform.processor())

    def model_key(self, device: Device) -> str:
        return f"{device.name}, {device.cores} cores, isa {device.features}"

    def builders(self) -> int:
        # On one core two would both be done when the second is.
        return min(_BUILDERS, available_cores())

    def batch_size(self, builders: int) -> int:
        return _BATCH

    def num_threads(self, context: BuildContext, device: Device) -> int:
        return device.cores if context.num_threads == NUM_THREADS_ALL else context.num_threads

    def misfit(self, arch: str, device: Device) -> str:
        if arch != tvm.target.codegen.llvm_get_system_cpu():
            return ""  # Somebody who names a processor means the workers'.
        if self.detect().features == device.features:
            return ""
        return (
            f"the target is this machine's processor ({arch}), which the workers' "
            f"({self.device_key(device)}) is not: name theirs, for example llvm:mcpu=x86-64-v3"
        )


def cpu_at(root: Path, machine: str, processors: Set[int], otherwise: str = "") -> Device:
    """A processor, by what its machine's pseudo files say.

    Parameters
    ----------
    root : Path
        Where ``/proc`` and ``/sys`` are.
    machine : str
        Its architecture.
    processors : set of int
        Those that may be used.
    otherwise : str
        What it is called where neither it nor its board has a name; by default its architecture.

    Returns
    -------
    Device
        Named by its model, with a digest of the machine's kind and its instruction sets.

    Examples
    --------
    >>> cpu_at(Path("a machine that tells nothing"), "riscv64", {0, 1}).name
    'riscv64'
    """
    fields = _cpuinfo(root / "proc/cpuinfo")
    called = fields.get("model name") or _board(root) or otherwise or machine
    flags = " ".join(sorted((fields.get("flags") or fields.get("features") or "").split()))
    digest = hashlib.sha256(f"{machine} {flags}".encode()).hexdigest()[:12]
    return Device(
        CPU.name,
        " ".join(called.split()),
        len(processors),
        digest,
        conditions=conditions(processors, root),
    )


def listed_processors(root: Path) -> Set[int]:
    """The processors that this process may use, by the machine's pseudo files; at least one."""
    allowed = _cpuinfo(root / "proc/self/status").get("cpus_allowed_list", "")
    return numbers(allowed) or {0}


def available_cores() -> int:
    """Cores that this process may use, which is also what OpenMP takes by default.

    Examples
    --------
    >>> available_cores() >= 1
    True
    """
    return len(_available_processors())


def _available_processors() -> Set[int]:
    """The numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return frozenset(range(os.cpu_count() or 1))


def _board(root: Path) -> str:
    """What a board's firmware calls it, where processors have no names."""
    path = root / "proc/device-tree/model"
    return (
        path.read_text(encoding="utf-8", errors="replace").strip("\0\n ") if path.exists() else ""
    )


def _cpuinfo(path: Path) -> dict[str, str]:
    """The first processor's fields, with lower-case names; empty where there is no such file."""
    if not path.exists():
        return {}
    fields: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            break
        fields[name.strip().lower()] = value.strip()
    return fields
