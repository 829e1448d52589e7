"""What is unusual about how a processor runs: what the same model does not do everywhere.

Read from Linux's pseudo files, never set; where they are missing, nothing is unusual. What is said
here goes into the keys of measurements, so that times which do not compare are never mixed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path("/")

_AT_FULL_CLOCK = frozenset({"performance", "schedutil", "ondemand", "interactive"})
"""Governors under which a processor that was warmed up runs as fast as it may."""

_SCALES_ITSELF = ("intel_pstate", "amd-pstate", "amd-pstate-epp")
"""Drivers with which the processor chooses its clock: their ``powersave`` is the usual one."""

_SMT_OFF = frozenset({"off", "forceoff"})


def conditions(processors: Iterable[int], root: Path = ROOT) -> tuple[str, ...]:
    """Everything unusual, in words for people and for keys.

    Parameters
    ----------
    processors : iterable of int
        Those that this process may use.
    root : Path
        Where ``/proc`` and ``/sys`` are.

    Returns
    -------
    tuple of str
        Each a few words; empty on a machine that has nothing unusual.

    Examples
    --------
    >>> conditions([0, 1], Path("a machine that tells nothing"))
    ()
    """
    used = sorted(processors)
    found = [_quota(len(used), root), _pinned(used, root), _smt(root), *_clocks(used, root)]
    return tuple(one for one in found if one)


def _quota(processors: int, root: Path) -> str:
    """Of a container that may use its processors for a share of the time only."""
    cores = min((quota for quota in _quotas(root)), default=math.inf)
    return f"quota of {cores:.2f} cores" if cores < processors else ""


def _quotas(root: Path) -> Iterator[float]:
    """Of this process's control group and of all above it; every one of them limits."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers and "cpu" not in names:
            continue
        tops = [root / "sys/fs/cgroup"]
        if controllers:
            tops = [tops[0] / controllers, tops[0] / "cpu"]
        for top in tops:
            # A container may see its own group where the root is, and the path from outside.
            steps = [part for part in path.split("/") if part and part != ".."]
            for depth in range(len(steps) + 1):
                folder = top.joinpath(*steps[:depth])
                yield from _quota_of(folder)


def _quota_of(folder: Path) -> Iterator[float]:
    unified = _text(folder / "cpu.max").split()
    if len(unified) == 2 and unified[0] != "max":
        yield int(unified[0]) / int(unified[1])
    quota, period = (_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if quota and period and int(quota) > 0:
        yield int(quota) / int(period)


def _pinned(used: list[int], root: Path) -> str:
    """Of a process that may use some of the processors: on how many cores and nodes these are.

    Which ones they are does not matter where they are alike.
    """
    folder = root / "sys/devices/system"
    online = numbers(_text(folder / "cpu/online"))
    if not online or set(used) >= online:
        return ""
    cores = {
        _text(folder / f"cpu/cpu{number}/topology/thread_siblings_list") or str(number)
        for number in used
    }
    nodes = [
        held
        for path in sorted(folder.glob("node/node[0-9]*/cpulist"))
        if (held := len(numbers(_text(path)) & set(used)))
    ]
    split = "+".join(map(str, sorted(nodes, reverse=True))) if len(nodes) > 1 else ""
    capacities = Counter(
        capacity for number in used if (capacity := _text(folder / f"cpu/cpu{number}/cpu_capacity"))
    )
    kinds = ", ".join(f"{count} of capacity {one}" for one, count in sorted(capacities.items()))
    parts = [
        f"{len(used)} of {len(online)} processors on {len(cores)} cores",
        f"nodes {split}" if split else "",
        kinds if len(set(_capacities(folder, online))) > 1 else "",
    ]
    return ", ".join(part for part in parts if part)


def _capacities(folder: Path, online: Iterable[int]) -> Iterator[str]:
    for number in online:
        yield _text(folder / f"cpu/cpu{number}/cpu_capacity")


def _smt(root: Path) -> str:
    control = _text(root / "sys/devices/system/cpu/smt/control")
    return "simultaneous multithreading off" if control in _SMT_OFF else ""


def _clocks(used: Iterable[int], root: Path) -> Iterator[str]:
    folder = root / "sys/devices/system/cpu"
    policies = [folder / f"cpu{number}/cpufreq" for number in used]
    governors = {_governor(policy) for policy in policies} - {""}
    if governors:
        yield f"governor {'+'.join(sorted(governors))}"
    limits = {_limit(policy) for policy in policies} - {""}
    if limits:
        yield f"at most {'+'.join(sorted(limits))} MHz"
    no_turbo = _text(folder / "intel_pstate/no_turbo") == "1"
    if no_turbo or _text(folder / "cpufreq/boost") == "0":
        yield "no turbo"


def _governor(policy: Path) -> str:
    governor = _text(policy / "scaling_governor")
    itself = _text(policy / "scaling_driver") in _SCALES_ITSELF
    return "" if governor in _AT_FULL_CLOCK or (governor == "powersave" and itself) else governor


def _limit(policy: Path) -> str:
    allowed, possible = (_text(policy / f"{name}_max_freq") for name in ("scaling", "cpuinfo"))
    if not allowed or not possible or int(allowed) >= int(possible):
        return ""
    return str(int(allowed) // 1000)


def numbers(text: str) -> set[int]:
    """Of a list such as ``0-3,8``."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _text(path: Path) -> str:
    """What a file says; empty where there is none, or none that may be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
