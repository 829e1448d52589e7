"""What a machine says of itself that has TVM's runtime alone: the same facts as this one's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path

import tvm

from collage.backends.contract.errors import MeasurementError
from collage.backends.devices import CPU, CUDA
from collage.cost.device import Device
from collage.cost.device.cpu import cpu_at, listed_processors
from collage.cost.processes.messages import Connect, Detected
from collage.cost.worker.rpc.link import Link

_MIB = 1 << 20

_MOST_NODES = 64

_FILES = (
    "proc/cpuinfo",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/device-tree/model",
    "proc/driver/nvidia/version",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/smt/control",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/cpufreq/boost",
)

_OF_A_PROCESSOR = (
    "topology/thread_siblings_list",
    "cpu_capacity",
    "cpufreq/scaling_governor",
    "cpufreq/scaling_driver",
    "cpufreq/scaling_max_freq",
    "cpufreq/cpuinfo_max_freq",
)

_OF_A_GROUP = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")


def detect(link: Link, device: tvm.runtime.Device, request: Connect) -> Detected:
    """The fingerprint of a session's device, as this project would give it over there.

    Parameters
    ----------
    link : Link
        To the machine.
    device : tvm.runtime.Device
        The session's.
    request : Connect
        Its kind, and what it is called if it cannot tell.

    Returns
    -------
    Detected
        With the load of that machine per processor, None where it does not say.

    Raises
    ------
    MeasurementError
        When it cannot tell what it is, and nobody said so.
    """
    with tempfile.TemporaryDirectory(prefix="collage-facts-") as name:
        root = Path(name)
        for path in _FILES:
            _copy(link, path, root)
        processors = listed_processors(root)
        for path in _more(link, root, sorted(processors)):
            _copy(link, path, root)
        found = _FINGERPRINTS[request.kind](_Told(link, device, processors, root), request)
        load = link.read("/proc/loadavg").split()
    return Detected(device=found, load=float(load[0]) / len(processors) if load else None)


def _copy(link: Link, path: str, root: Path) -> None:
    text = link.read(f"/{path}")
    if text:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def _more(link: Link, root: Path, processors: list[int]) -> Iterator[str]:
    """What has to be asked besides, which depends on what was answered."""
    folder = "sys/devices/system"
    for number in processors:
        for name in _OF_A_PROCESSOR:
            yield f"{folder}/cpu/cpu{number}/{name}"
    for node in range(_MOST_NODES):
        path = f"{folder}/node/node{node}/cpulist"
        if not link.read(f"/{path}"):
            break
        yield path
    groups = root / "proc/self/cgroup"
    for line in groups.read_text(encoding="utf-8").splitlines() if groups.exists() else ():
        _, controllers, place = line.split(":", 2)
        steps = [part for part in place.split("/") if part and part != ".."]
        for top in (controllers, "cpu") if controllers else ("",):
            for depth in range(len(steps) + 1):
                parts = ["sys/fs/cgroup", top, *steps[:depth]]
                for name in _OF_A_GROUP:
                    yield "/".join([part for part in parts if part] + [name])


@dataclass(frozen=True)
class _Told:
    """What a machine told: files below ``root``, what is asked of TVM, and its processors."""

    link: Link
    device: tvm.runtime.Device
    processors: Set[int]
    root: Path


def _processor(told: _Told, request: Connect) -> Device:
    machine = told.link.machine()
    found = cpu_at(told.root, machine, told.processors, request.fingerprint)
    if request.fingerprint:
        return replace(found, name=request.fingerprint)
    if found.name == machine:
        raise _nameless(request)
    return found


def _gpu(told: _Told, request: Connect) -> Device:
    """What TVM's runtime tells of a GPU; an operator's limits are not among it."""
    device = told.device
    version = str(device.compute_version or "")
    name = request.fingerprint or str(device.device_name or "")
    if not name or not version:
        raise _nameless(request)
    driver = told.root / "proc/driver/nvidia/version"
    words = driver.read_text(encoding="utf-8").splitlines()[:1] if driver.exists() else ["unknown"]
    return Device(
        request.kind,
        name,
        int(device.multi_processor_count or 0),
        f"sm_{version.replace('.', '')}",
        " ".join(words[0].split()),
        int(device.total_global_memory or 0) // _MIB,
    )


_FINGERPRINTS: dict[str, Callable[[_Told, Connect], Device]] = {
    CPU.name: _processor,
    CUDA.name: _gpu,
}
"""How a device of a kind is known over there."""


def _nameless(request: Connect) -> MeasurementError:
    return MeasurementError(
        f"the {request.kind} device at {request.host}:{request.port} does not tell what it is; "
        "say so with fingerprint=NAME behind the key",
        value=request.kind,
    )
