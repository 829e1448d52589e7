"""What is unusual about a processor, read from the files that Linux would show."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from collage.cost.device import CPU_POLICY, Device
from collage.cost.device.cpu_conditions import conditions

EIGHT = range(8)
CPUS = "sys/devices/system/cpu"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Four cores of two threads each on two nodes, as a server has them when it was installed."""
    write(tmp_path, f"{CPUS}/online", "0-7")
    write(tmp_path, f"{CPUS}/smt/control", "on")
    write(tmp_path, f"{CPUS}/cpufreq/boost", "1")
    write(tmp_path, "proc/self/cgroup", "0::/user.slice/shell.scope")
    write(tmp_path, "sys/fs/cgroup/user.slice/cpu.max", "max 100000")
    for node in range(2):
        write(tmp_path, f"sys/devices/system/node/node{node}/cpulist", f"{4 * node}-{4 * node + 3}")
    for cpu in EIGHT:
        folder = f"{CPUS}/cpu{cpu}"
        first = cpu - cpu % 2
        write(tmp_path, f"{folder}/topology/thread_siblings_list", f"{first}-{first + 1}")
        write(tmp_path, f"{folder}/cpufreq/scaling_driver", "acpi-cpufreq")
        write(tmp_path, f"{folder}/cpufreq/scaling_governor", "schedutil")
        write(tmp_path, f"{folder}/cpufreq/scaling_max_freq", "3500000")
        write(tmp_path, f"{folder}/cpufreq/cpuinfo_max_freq", "3500000")
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def test_a_machine_as_it_comes_has_nothing_unusual(machine: Path) -> None:
    """So that logs of releases that did not look stay hits."""
    assert conditions(EIGHT, machine) == ()
    for cpu in EIGHT:
        write(machine, f"{CPUS}/cpu{cpu}/cpufreq/scaling_driver", "intel_pstate")
        write(machine, f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor", "powersave")
    write(machine, f"{CPUS}/intel_pstate/no_turbo", "0")
    write(machine, f"{CPUS}/smt/control", "notsupported")
    assert conditions(EIGHT, machine) == ()
    cpu = Device("cpu", "Some CPU", 8, "0123")
    assert CPU_POLICY.device_key(cpu) == "Some CPU, 8 cores, isa 0123"


@pytest.mark.parametrize(
    ("path", "text", "condition"),
    [
        ("sys/fs/cgroup/user.slice/cpu.max", "50000 100000", "quota of 0.50 cores"),
        ("sys/fs/cgroup/user.slice/shell.scope/cpu.max", "250000 100000", "quota of 2.50 cores"),
        ("sys/fs/cgroup/cpu.max", "400000 100000", "quota of 4.00 cores"),
        (f"{CPUS}/smt/control", "off", "simultaneous multithreading off"),
        (f"{CPUS}/cpufreq/boost", "0", "no turbo"),
        (f"{CPUS}/intel_pstate/no_turbo", "1", "no turbo"),
        (f"{CPUS}/cpu3/cpufreq/scaling_governor", "powersave", "governor powersave"),
        (f"{CPUS}/cpu3/cpufreq/scaling_max_freq", "2000000", "at most 2000 MHz"),
    ],
)
def test_what_is_unusual_is_said(machine: Path, path: str, text: str, condition: str) -> None:
    write(machine, path, text)
    assert conditions(EIGHT, machine) == (condition,)


def test_a_quota_that_limits_nothing_is_none(machine: Path) -> None:
    write(machine, "sys/fs/cgroup/user.slice/cpu.max", "800000 100000")
    assert conditions(EIGHT, machine) == ()
    assert conditions([0, 1, 2, 3, 4, 5, 6, 7], machine) == ()


def test_a_quota_of_the_first_kind_of_control_groups(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "4:cpu,cpuacct:/docker/5f1c\n1:name=systemd:/")
    write(machine, "sys/fs/cgroup/cpu/docker/5f1c/cpu.cfs_period_us", "100000")
    write(machine, "sys/fs/cgroup/cpu/docker/5f1c/cpu.cfs_quota_us", "-1")
    assert conditions(EIGHT, machine) == ()
    write(machine, "sys/fs/cgroup/cpu/docker/5f1c/cpu.cfs_quota_us", "150000")
    assert conditions(EIGHT, machine) == ("quota of 1.50 cores",)


def test_inside_a_container_its_own_group_is_where_the_root_is(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/../../kubepods/pod1")
    write(machine, "sys/fs/cgroup/cpu.max", "150000 100000")
    assert conditions(EIGHT, machine) == ("quota of 1.50 cores",)


def test_where_a_process_is_pinned_counts_but_not_to_which_of_equals(machine: Path) -> None:
    (siblings,) = conditions([0, 1], machine)
    assert siblings == "2 of 8 processors on 1 cores"
    (apart,) = conditions([0, 2], machine)
    assert apart == "2 of 8 processors on 2 cores"
    assert conditions([4, 6], machine) == conditions([1, 3], machine) == (apart,)
    assert conditions([2, 4], machine) == ("2 of 8 processors on 2 cores, nodes 1+1",)
    for cpu in EIGHT:
        write(machine, f"{CPUS}/cpu{cpu}/cpu_capacity", "1024" if cpu < 4 else "512")
    big, small = conditions([0, 2], machine), conditions([4, 6], machine)
    assert big == (f"{apart}, 2 of capacity 1024",)
    assert small == (f"{apart}, 2 of capacity 512",)
    assert conditions(EIGHT, machine) == ()


def test_conditions_are_part_of_the_key(machine: Path) -> None:
    write(machine, "sys/fs/cgroup/cpu.max", "50000 100000")
    write(machine, f"{CPUS}/cpufreq/boost", "0")
    cpu = Device("cpu", "Some CPU", 8, "0123")
    limited = dataclasses.replace(cpu, conditions=conditions(EIGHT, machine))
    key = "Some CPU, 8 cores, isa 0123; quota of 0.50 cores; no turbo"
    assert CPU_POLICY.device_key(limited) == key


def test_this_machine_can_be_asked() -> None:
    """Whatever its files say, or lack."""
    device = CPU_POLICY.detect()
    assert all(isinstance(one, str) and one and ";" not in one for one in device.conditions)
