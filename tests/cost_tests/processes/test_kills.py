"""What the system tells of why a process was killed."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from collage.cost.base import CostStatus
from collage.cost.processes.kills import Kills, MemoryPressure

_MIB = 1 << 20


def machine(folder: Path, cgroup: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Folders as the system shows them, for process 7."""
    for name, text in {"proc/7/cgroup": cgroup, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "proc", folder / "cgroup"


@pytest.mark.parametrize(
    ("cgroup", "counter", "limit"),
    [
        ("0::/jobs/mine\n", "jobs/mine/memory.events", "jobs/memory.max"),
        (
            "5:cpu:/\n4:hugetlb,memory:/jobs/mine\n0::/\n",
            "memory/jobs/mine/memory.oom_control",
            "memory/jobs/mine/memory.limit_in_bytes",
        ),
        # In a container, whose own cgroup is all that is mounted.
        ("4:memory:/docker/5f1c\n", "memory/memory.oom_control", "memory/memory.limit_in_bytes"),
    ],
)
def test_a_cgroup_counts_what_its_limits_killed(
    tmp_path: Path, cgroup: str, counter: str, limit: str
) -> None:
    text = "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"
    files = {f"cgroup/{counter}": text, f"cgroup/{limit}": f"{400 * _MIB}\n"}
    places = machine(tmp_path, cgroup, {**files, "proc/vmstat": "oom_kill 9\n"})
    before = MemoryPressure.of(7, *places)
    assert before.kills == 2 and before.memory_bytes == 400 * _MIB
    assert not before.made_room()
    assert not before.accuses(350 * _MIB, 4096 * _MIB)
    (tmp_path / "cgroup" / counter).write_text(text.replace("oom_kill 2", "oom_kill 3"))
    assert before.made_room()
    assert before.accuses(350 * _MIB, 4096 * _MIB)
    # The system made room, but this one had hardly taken any.
    assert not before.accuses(20 * _MIB, 4096 * _MIB)


def test_a_machine_counts_where_there_are_no_cgroups(tmp_path: Path) -> None:
    places = machine(tmp_path, "0::/\n", {"proc/vmstat": "nr_free_pages 5\noom_kill 9\n"})
    before = MemoryPressure.of(7, *places)
    assert before.kills == 9 and before.memory_bytes == psutil.virtual_memory().total
    (tmp_path / "proc/vmstat").write_text("oom_kill 10\n")
    assert before.made_room()


def test_where_nothing_is_counted_memory_that_was_all_but_used_up_is_evidence(
    tmp_path: Path,
) -> None:
    before = MemoryPressure.of(7, tmp_path, tmp_path)
    assert before.made_room() is None
    assert before.accuses(60 * _MIB, 100 * _MIB)
    assert not before.accuses(40 * _MIB, 100 * _MIB)


def test_only_the_systems_word_twice_is_held_against_a_request() -> None:
    unknown, memory = CostStatus.UNKNOWN, CostStatus.OUT_OF_MEMORY
    kills = Kills()
    assert [kills.is_asked_again(status) for status in (unknown, memory, unknown, memory)] == [
        *(True, True, True, False)
    ]
    assert kills.verdict("it ate")[0] is memory
    kills = Kills()
    assert [kills.is_asked_again(status) for status in (unknown,) * 4 + (memory,)][-2:] == [
        *(True, False)
    ]
    assert kills.verdict("it ate") == (
        *(unknown, "5 workers were lost with it, the last one because it ate"),
    )
