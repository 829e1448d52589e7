"""The program of a fork server: it has imported what its children need, and forks one per request.

Its other end is :mod:`collage.backends.toolchain.children.fork_server`. It has one thread and runs
nothing of what it imported, so a fork inherits no lock that is held and no thread that is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import NoReturn

from collage.backends.toolchain.children.child_boot import (
    PR_SET_PDEATHSIG,
    Line,
    nothing_is_garbage,
    without_packages,
)

_PR_SET_NAME = 15
_LOOK_SEC = 1.0
"""How often it is looked whether the parent lives: a fork of the parent's may hold its socket."""

BEGAN, ENDED = "began", "ended"
"""What is told of a child: its process id, by itself, and its exit status."""

_FDS = 5
"""With each request: its text, standard input, output and error, and the socket for its status."""

Run = Callable[[Line, list[str]], None]


def main(line: Line, module: str, without: str, parent: str, channel: str) -> None:
    """Import a module and serve until the parent goes.

    Parameters
    ----------
    line : Line
        To nobody: requests come through a socket, which carries files.
    module : str
        Its ``main`` is what children run.
    without : str
        Packages that are not to be found meanwhile, as a list in JSON.
    parent : str
        Its process id.
    channel : str
        The socket's file descriptor.
    """
    del line
    # Not with the thread that happened to start it: others use it after that one.
    _prctl(PR_SET_PDEATHSIG, 0)
    _name("collage-server")
    _Server(int(parent), int(channel), _imported(module, json.loads(without))).serve()


def _imported(module: str, without: list[str]) -> Run:
    try:
        with without_packages(without), nothing_is_garbage():
            program = importlib.import_module(module)
            if hasattr(program, "prepare"):
                program.prepare()
    except Exception as err:  # noqa: BLE001 (each child says so, as one that imports for itself)
        failed = err

        def fail(line: Line, arguments: list[str]) -> None:
            raise failed

        return fail
    return lambda line, arguments: program.main(line, *arguments)


class _Server:
    """Children by their process ids, each with the socket on which its status is told.

    A child that has ended stays a zombie until the parent closes that socket, so that its number
    is nobody else's while the parent may signal it. One that is killed may take seconds to go, as
    drivers give back a GPU's memory: no other child waits for that.
    """

    def __init__(self, parent: int, channel: int, run: Run) -> None:
        self._parent = parent
        self._channel = socket.socket(fileno=channel)
        self._run = run
        self._children: dict[int, socket.socket] = {}
        self._leaving: dict[int, socket.socket] = {}
        self._ended: set[int] = set()
        self._wake, wake = socket.socketpair()
        for end in (self._wake, wake):
            end.setblocking(False)
        self._waker = wake
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Until the parent closes its end, or is gone."""
        while os.getppid() == self._parent:
            children = {status: pid for pid, status in self._children.items()}
            ready, _, _ = select.select([self._channel, self._wake, *children], [], [], _LOOK_SEC)
            if self._channel in ready and not self._fork():
                break
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            for status in ready:
                if status in children:
                    self._let_go(children[status])
            self._look()
        for pid in self._children:
            _kill(pid)

    def _fork(self) -> bool:
        """A child for the next request; False when there will be none."""
        message, fds, _, _ = socket.recv_fds(self._channel, 16, _FDS)
        if not message:
            return False
        *files, status = fds
        # Each child would say once more, at its end, what is left unsaid here: its last words.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        try:
            pid = os.fork()
        except OSError:
            # No room for it: its parent sees an end without a word, and may try again.
            for fd in fds:
                os.close(fd)
            return True
        if pid == 0:
            self._become(files, socket.socket(fileno=status))
        for fd in files:
            os.close(fd)
        self._children[pid] = socket.socket(fileno=status)
        return True

    def _become(self, files: list[int], status: socket.socket) -> NoReturn:
        """In the child: be what a fresh interpreter would have become."""
        server = os.getppid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        theirs = (*self._children.values(), *self._leaving.values())
        for mine in (self._channel, self._wake, self._waker, *theirs):
            mine.close()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)
        os.setsid()
        _name("collage-worker")
        text, *standard = files
        for number, fd in enumerate(standard):
            os.dup2(fd, number)
            os.close(fd)
        code = 1
        try:
            with os.fdopen(text, encoding="utf-8") as file:
                request = json.load(file)
            os.environ.clear()
            os.environ.update(request["environment"])
            tempfile.tempdir = None
            os.chdir(request["folder"])
            os.nice(request["niceness"])
            # Whoever knows its number may signal its group, which is there now.
            status.send(f"{BEGAN} {os.getpid()}".encode())
            status.close()
            self._run(Line(), request["arguments"])
            code = 0
        except SystemExit as err:
            code = err.code if isinstance(err.code, int) else 1
        except BaseException:  # noqa: BLE001 (the interpreter's own way to end)
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _let_go(self, pid: int) -> None:
        """The parent does not want to know of it any longer."""
        if pid not in self._ended:
            # It may not be the head of its group yet.
            _kill(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._leaving[pid] = self._children.pop(pid)

    def _look(self) -> None:
        """Tell of those that have ended, and let those go that nobody wants to know of."""
        for pid in list(self._leaving):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._ended.discard(pid)
                self._leaving.pop(pid).close()
        for pid, status in self._children.items():
            if pid in self._ended:
                continue
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self._ended.add(pid)
                by_itself = ended.si_code == os.CLD_EXITED
                code = ended.si_status if by_itself else -ended.si_status
                with contextlib.suppress(OSError):  # The parent has closed it.
                    status.send(f"{ENDED} {code}".encode())


def _kill(pid: int) -> None:
    """A child with everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _name(name: str) -> None:
    """What process lists show."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
