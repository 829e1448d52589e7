"""Forks of a server: as a fresh interpreter's children, but for what was imported."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collage.backends.toolchain.children.child_process import ChildDiedError, ChildProcess
from collage.backends.toolchain.children.fork_server import ForkServers, fork_servers
from collage.backends.toolchain.children.python_program import PythonProgram

_PROGRAM = """
import os, time
with open(os.path.join(os.path.dirname(__file__), "imported"), "a") as file:
    file.write(f"{os.getpid()} ")
time.sleep(float(os.environ.get("SLOW", "0")))
others = []


def main(line, greeting):
    for request in line:
        others.append(request)
        said = eval(request)
        line.answer(f"{greeting} {said}".encode())
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PythonProgram:
    (tmp_path / "program.py").write_text(_PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    return PythonProgram("program", ("says",))


@pytest.fixture
def servers() -> Iterator[ForkServers]:
    servers = ForkServers()
    with servers.kept():
        yield servers


def _said(child: ChildProcess, expression: str) -> str:
    child.send(expression.encode())
    return child.receive(30.0).decode().removeprefix("says ")


def _server_of(child: ChildProcess) -> psutil.Process:
    server = psutil.Process(child.pid).parent()
    assert server is not None and server.name() == "collage-server"
    return server


def test_what_they_have_in_common_is_imported_once(
    program: PythonProgram,
    servers: ForkServers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ChildProcess(program, servers=servers) as first:
        assert _said(first, "len(others)") == "1"
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        monkeypatch.chdir(folder)
        late = {"COLLAGE_CACHE_DIR": "here", "TMPDIR": str(folder)}
        with ChildProcess(program, late, niceness=2, servers=servers) as second:
            assert _said(second, "len(others)") == "1", "what one does is nothing to another"
            assert _said(second, "os.environ['COLLAGE_CACHE_DIR']") == "here"
            assert _said(second, "__import__('tempfile').gettempdir()") == str(folder)
            assert _said(second, "os.getcwd()") == str(folder)
            nice = os.getpriority(os.PRIO_PROCESS, 0) + 2
            assert _said(second, "os.getpriority(os.PRIO_PROCESS, 0)") == str(min(19, nice))
            assert os.getpgid(second.pid) == second.pid != os.getpgid(first.pid)
        assert _said(first, "'COLLAGE_CACHE_DIR' in os.environ") == str(
            "COLLAGE_CACHE_DIR" in os.environ
        )
        # What may decide how something is imported is not shared.
        with ChildProcess(program, {"OPENBLAS_NUM_THREADS": "3"}, servers=servers) as third:
            assert _said(third, "os.environ['OPENBLAS_NUM_THREADS']") == "3"
            assert _server_of(third) != _server_of(first)
    assert len((tmp_path / "imported").read_text().split()) == 2


def test_no_server_is_left_where_none_is_kept(program: PythonProgram) -> None:
    servers = ForkServers()
    with ChildProcess(program, servers=servers) as child:
        server = _server_of(child)
        with ChildProcess(program, servers=servers) as other:
            assert _server_of(other) == server
        assert server.is_running()
    assert not server.is_running()
    with servers.kept():
        with ChildProcess(program, servers=servers) as child:
            server = _server_of(child)
        assert server.is_running()
    assert not server.is_running()


def test_a_server_that_was_prepared_is_that_of_its_children(
    program: PythonProgram, tmp_path: Path
) -> None:
    servers, imported = ForkServers(), tmp_path / "imported"
    servers.prepare(program, dict(os.environ))
    assert not imported.exists(), "nobody keeps it"
    with servers.kept():
        servers.prepare(program, dict(os.environ))
        servers.prepare(PythonProgram(program.module), dict(os.environ))
        while not (imported.exists() and imported.read_text()):
            time.sleep(0.01)
        with ChildProcess(program, servers=servers) as child:
            assert _said(child, "1 + 1") == "2"
            server = _server_of(child)
        assert imported.read_text().split() == [str(server.pid)]
    assert not server.is_running()


def test_children_of_a_server_that_is_killed_end_and_the_next_has_another(
    program: PythonProgram, servers: ForkServers
) -> None:
    with ChildProcess(program, servers=servers) as child:
        _said(child, "1")
        server = _server_of(child)
        server.kill()
        with pytest.raises(ChildDiedError) as caught:
            child.receive(30.0)
        assert caught.value.status == -signal.SIGKILL
    with ChildProcess(program, servers=servers) as child:
        assert _said(child, "1 + 1") == "2"
        assert _server_of(child) != server


def test_who_is_not_wanted_any_longer_is_not_waited_for(
    program: PythonProgram, servers: ForkServers
) -> None:
    begin = time.monotonic()
    with ChildProcess(program, {"SLOW": "20"}, servers=servers) as child:
        assert not child.is_started and child.alive
        child.resume()
        child.kill()
        assert not child.alive
    assert time.monotonic() - begin < 10.0


def test_nobody_waits_for_one_that_takes_its_time_to_go(
    program: PythonProgram, servers: ForkServers
) -> None:
    """As who has a GPU's context does; here a tracer has it stay until it has looked at it."""
    seize, wait_for_any = 0x4206, 0x40000000
    with ChildProcess(program, servers=servers) as lasting:
        pid, server = lasting.pid, _server_of(lasting)
        if ctypes.CDLL(None, use_errno=True).ptrace(seize, pid, None, None) != 0:
            pytest.skip(f"no process may be traced here: {os.strerror(ctypes.get_errno())}")
        lasting.begin_kill()
        # It is given up before it has gone, as by a parent that ends itself.
        lasting._process._give_up()  # type: ignore[attr-defined]
        begin = time.monotonic()
        with ChildProcess(program, servers=servers) as other:
            assert _said(other, "1 + 1") == "2"
            assert _server_of(other) == server
        assert time.monotonic() - begin < 10.0
        assert psutil.pid_exists(pid), "it was to stay"
        os.waitpid(pid, wait_for_any)
    while psutil.pid_exists(pid):
        time.sleep(0.01)


def test_a_child_says_why_its_program_cannot_be_imported(servers: ForkServers) -> None:
    for _ in range(2):
        with (
            ChildProcess(PythonProgram("no_such_module"), servers=servers) as child,
            pytest.raises(ChildDiedError) as caught,
        ):
            child.receive(30.0)
        assert caught.value.status == 1
        assert caught.value.last_words == "ModuleNotFoundError: No module named 'no_such_module'"


def test_threads_ask_at_once(program: PythonProgram, servers: ForkServers) -> None:
    answers: list[str] = []

    def ask(number: int) -> None:
        with ChildProcess(program, servers=servers) as child:
            answers.append(_said(child, f"{number} + 0"))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, answers)) == list(range(12))


def test_a_child_ends_by_itself_when_its_input_does(
    program: PythonProgram, servers: ForkServers
) -> None:
    child = ChildProcess(program, servers=servers)
    _said(child, "1")
    child._process.stdin.close()
    assert child.wait() == 0
    child.close()


def test_a_server_that_cannot_fork_goes_on(
    program: PythonProgram, servers: ForkServers, tmp_path: Path
) -> None:
    """For once: the next child is there."""
    fails_once = """
import os
fork = os.fork
def failing():
    os.fork = fork
    raise BlockingIOError("no room")
os.fork = failing
"""
    text = (tmp_path / "program.py").read_text()
    (tmp_path / "program.py").write_text(fails_once + text)
    with ChildProcess(program, servers=servers) as child, pytest.raises(ChildDiedError) as caught:
        child.receive(30.0)
    assert caught.value.status == -signal.SIGKILL
    with ChildProcess(program, servers=servers) as child:
        assert _said(child, "3") == "3"
    assert len((tmp_path / "imported").read_text().split()) == 1


def test_a_fork_of_this_process_has_servers_of_its_own() -> None:
    ours = fork_servers()
    pid = os.fork()
    if pid == 0:
        os._exit(int(fork_servers() is ours))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert fork_servers() is ours
