"""Children answer lines, say why they ended, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collage.backends.toolchain.children.child_process import (
    ChildDiedError,
    ChildProcess,
    ChildTimeoutError,
)
from collage.backends.toolchain.children.fork_server import ForkServers
from collage.backends.toolchain.children.python_program import PythonProgram

_PROGRAM = """
import os, subprocess, sys, time
print("while it is imported")
try:
    import not_here
except ImportError as err:
    hidden = type(err).__name__
else:
    hidden = "found"


def main(line, greeting):
    import not_here
    subprocess.run(["echo", "a child of its own"], check=True)
    line.answer(f"{greeting} {hidden}".encode())
    for request in line:
        words = request.decode().split()
        match words[0]:
            case "echo":
                print("to nobody in particular", flush=True)
                line.answer(request)
            case "long":
                line.answer(b"x" * int(words[1]))
            case "sleep":
                time.sleep(1000)
            case "start":
                child = subprocess.Popen(["sleep", "1000"])
                line.answer(str(child.pid).encode())
            case "fail":
                raise ValueError("it fails")
            case "kill":
                os.kill(os.getpid(), int(words[1]))
            case "half":
                os.write(line._answers, b"half a line")
                os._exit(3)
    open("ended", "w").close()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PythonProgram:
    (tmp_path / "program.py").write_text(_PROGRAM)
    (tmp_path / "not_here.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    # Most users do not have it: what is printed waits for the end of a process.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return PythonProgram("program", ("hello",), without=("not_here",))


@pytest.fixture(params=["fresh", "forked"])
def servers(request: pytest.FixtureRequest) -> Iterator[ForkServers | None]:
    """A child is a fresh interpreter, or a fork of a server's."""
    if request.param == "fresh":
        yield None
        return
    servers = ForkServers()
    with servers.kept():
        yield servers


@pytest.fixture
def child(program: PythonProgram, servers: ForkServers | None) -> Iterator[ChildProcess]:
    with ChildProcess(program, servers=servers) as child:
        assert child.receive(30.0) == b"hello ModuleNotFoundError"
        yield child


def test_a_line_is_answered_by_a_line(child: ChildProcess) -> None:
    for text in (b"echo", "echo é ÿ".encode(), b"echo " + b"y" * (1 << 20)):
        child.send(text)
        assert child.receive(30.0) == text
    child.send(b"long 3000000")
    assert len(child.receive(30.0)) == 3_000_000
    assert child.poll(0.0) is None and child.alive


def test_what_libraries_print_is_no_answer(program: PythonProgram, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "child.txt"
    with ChildProcess(program, {"GREETING": "unused"}, log) as child:
        child.receive(30.0)
        child.send(b"echo")
        assert child.receive(30.0) == b"echo"
    printed = log.read_text().splitlines()
    assert sorted(printed) == [
        "a child of its own",
        "to nobody in particular",
        "while it is imported",
    ]


def test_an_answer_that_does_not_come(child: ChildProcess) -> None:
    child.send(b"sleep")
    begin = time.monotonic()
    with pytest.raises(ChildTimeoutError, match=r"gave no answer within 0\.3 s"):
        child.receive(0.3)
    assert 0.3 <= time.monotonic() - begin < 5.0
    assert child.alive
    child.kill()
    assert not child.alive


@pytest.mark.parametrize(
    ("request_", "status", "last_words"),
    [
        (b"fail", 1, "ValueError: it fails"),
        (b"half", 3, "a child of its own"),
        (f"kill {signal.SIGSEGV:d}".encode(), -signal.SIGSEGV, "a child of its own"),
    ],
)
def test_a_death_is_told_with_its_last_words(
    child: ChildProcess, request_: bytes, status: int, last_words: str
) -> None:
    child.send(request_)
    with pytest.raises(ChildDiedError) as caught:
        child.receive(30.0)
    assert (caught.value.status, caught.value.last_words) == (status, last_words)
    assert not child.alive
    # Whoever speaks on is told the same.
    child.send(b"echo")
    with pytest.raises(ChildDiedError):
        child.receive(30.0)
    child.resume()


def test_killing_reaches_what_it_started(child: ChildProcess) -> None:
    child.send(b"start")
    grandchild = int(child.receive(30.0))
    assert psutil.pid_exists(grandchild)
    child.close()
    assert _is_gone(grandchild)
    child.close()


def test_a_child_that_dies_leaves_nothing_that_it_started(child: ChildProcess) -> None:
    child.send(b"start")
    grandchild = int(child.receive(30.0))
    child.send(b"fail")
    with pytest.raises(ChildDiedError):
        child.receive(30.0)
    assert _is_gone(grandchild)


def test_a_suspended_child_stands_still(child: ChildProcess) -> None:
    child.suspend()
    child.send(b"echo")
    with pytest.raises(ChildTimeoutError):
        child.receive(0.3)
    child.resume()
    assert child.receive(30.0) == b"echo"


@pytest.mark.parametrize("own_group", [True, False])
def test_a_child_may_end_by_itself(program: PythonProgram, tmp_path: Path, own_group: bool) -> None:
    with ChildProcess(program, own_group=own_group) as child:
        child.receive(30.0)
        assert (os.getpgid(child.pid) == os.getpgid(0)) is not own_group
        child.end(30.0)
        assert (tmp_path / "ended").exists()
        assert not child.alive


@pytest.mark.parametrize("own_group", [True, False])
def test_a_child_that_does_not_end_is_killed(program: PythonProgram, own_group: bool) -> None:
    child = ChildProcess(program, own_group=own_group)
    child.receive(30.0)
    child.send(b"sleep")
    child.end(0.2)
    assert _is_gone(child.pid)


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ChildProcess([str(tmp_path / "nothing")])
    with ChildProcess(PythonProgram("no_such_module")) as child:
        with pytest.raises(ChildDiedError) as caught:
            child.receive(30.0)
        assert caught.value.last_words == "ModuleNotFoundError: No module named 'no_such_module'"
    silent = ChildProcess([sys.executable, "-c", ""])
    with silent, pytest.raises(ChildDiedError, match="ended with 0: no message"):
        silent.receive(30.0)


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("yes | head -c 1000000; exit 3", 3), ("kill -9 $$", -signal.SIGKILL)],
)
def test_one_that_nobody_listens_to_is_waited_for(script: str, status: int) -> None:
    with ChildProcess(["sh", "-c", script]) as child:
        assert child.wait() == status


def test_what_a_nice_child_starts_leaves_the_cores_to_others_too() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    program = "import os, subprocess; subprocess.run(['nice'])"
    with ChildProcess(
        ["sh", "-c", f'read line; "{sys.executable}" -c "{program}"'], niceness=3
    ) as child:
        child.send(b"go")
        assert int(child.receive(limit_sec=30)) == min(19, own + 3)


def test_many_end_while_one_waits_for_the_first() -> None:
    children = [ChildProcess(["sleep", "600"]) for _ in range(3)]
    for child in children:
        child.begin_kill()
    children[0].kill()
    end = time.monotonic() + 30
    while any(child.alive for child in children) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(child.alive for child in children)
    for child in children:
        child.close()


def test_lines_that_are_said_at_once_are_all_heard() -> None:
    with ChildProcess(["sh", "-c", "printf 'one\\ntwo\\nthr'; read line; echo ee"]) as child:
        assert [child.receive(30.0), child.receive(30.0)] == [b"one", b"two"]
        assert child.poll(0.5) is None
