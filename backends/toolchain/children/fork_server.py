"""Processes that fork: who starts a second worker does not import everything once more.

Importing TVM is most of a worker's start, seconds of a core's time; a fork of a process that has
imported it takes some 30 ms. The standard library's own fork server (:mod:`multiprocessing`) serves
one list of imports for a whole program, imports the user's main module into each child, and gives
no child an environment or a group of its own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from collage.backends.toolchain.children.processes import ForkedProcess
from collage.backends.toolchain.children.python_program import PythonProgram

_PROGRAM = "collage.backends.toolchain.children.fork_loop"

_READ_LATE = ("COLLAGE_", "CUDA_VISIBLE_DEVICES", "CXX", "PYTEST_CURRENT_TEST", "PWD", "TMPDIR")
"""How names of the environment begin that nothing reads while it is imported. What others say may
decide what a library becomes when it is loaded, so children that differ there share no server."""


@dataclass(frozen=True)
class _Key:
    """What the children of one server have in common."""

    module: str
    without: tuple[str, ...]
    path: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    parent: int
    cores: frozenset[int]

    @classmethod
    def of(cls, program: PythonProgram, environment: Mapping[str, str]) -> _Key:
        """Of a child of this process's."""
        early = [(n, v) for n, v in environment.items() if not n.startswith(_READ_LATE)]
        return cls(
            program.module,
            program.without,
            tuple(sys.path),
            tuple(sorted(early)),
            os.getpid(),
            # Libraries count them when they are loaded.
            frozenset(os.sched_getaffinity(0)),
        )


class _Server:
    """A process that forks.

    Parameters
    ----------
    module : str
        Whose ``main`` its children run.
    without : sequence of str
        Packages that it does not find while it imports that.
    """

    def __init__(self, module: str, without: Sequence[str], environment: Mapping[str, str]) -> None:
        self.users = 0
        self._channel, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = (module, json.dumps(without), str(os.getpid()), str(channel.fileno()))
        program = PythonProgram(_PROGRAM, arguments)
        with channel:
            self._process = subprocess.Popen(
                program.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[channel.fileno()],
                start_new_session=True,
            )

    def fork(
        self, request: Mapping[str, object], stderr: IO[bytes], released: Callable[[], None]
    ) -> ForkedProcess:
        """A child.

        Raises
        ------
        ConnectionError
            When the server is gone.
        """
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            text = theirs.enter_context(tempfile.TemporaryFile())
            text.write(json.dumps(request).encode())
            text.seek(0)
            stdin, to_stdin = os.pipe()
            from_stdout, stdout = os.pipe()
            theirs.callback(os.close, stdin)
            theirs.callback(os.close, stdout)
            mine, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            theirs.enter_context(status)
            ours.enter_context(mine)
            writer = ours.enter_context(os.fdopen(to_stdin, "wb", buffering=0))
            reader = ours.enter_context(os.fdopen(from_stdout, "rb", buffering=0))
            files = [text.fileno(), stdin, stdout, stderr.fileno(), status.fileno()]
            socket.send_fds(self._channel, [b"fork"], files)
            ours.pop_all()
        return ForkedProcess(mine, writer, reader, self._status_of_lost, released)

    def _status_of_lost(self) -> int:
        """How children end that this process does not tell of: with it."""
        status = self._process.poll()
        return status if status is not None and status < 0 else -signal.SIGKILL

    def close(self) -> None:
        """End it, in the middle of its imports if need be: nobody waits for a child of its."""
        self._channel.close()
        self._process.kill()
        self._process.wait()


class ForkServers:
    """Servers by what their children have in common. One without children ends, unless kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[_Key, _Server] = {}
        self._keepers = 0

    @property
    def supported(self) -> bool:
        """Whether this system has what it takes: children that die with their parent."""
        return sys.platform == "linux"

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Until this ends, servers are there for children to come, also while they have none."""
        with self._lock:
            self._keepers += 1
        try:
            yield
        finally:
            with self._lock:
                self._keepers -= 1
            self._end_unused()

    def prepare(self, program: PythonProgram, environment: Mapping[str, str]) -> None:
        """Have what children of a program are going to need imported meanwhile, where servers are
        kept: nobody waits for it.

        Parameters
        ----------
        program : PythonProgram
            What they are going to run, whatever its arguments.
        environment : mapping of str to str
            All of theirs.
        """
        with self._lock:
            if self._keepers and self.supported:
                self._of(program, environment)

    def _of(self, program: PythonProgram, environment: Mapping[str, str]) -> _Server:
        """The server of a program, begun where there is none; for who holds the lock."""
        key = _Key.of(program, environment)
        if key not in self._servers:
            self._servers[key] = _Server(program.module, program.without, environment)
        return self._servers[key]

    def fork(
        self,
        program: PythonProgram,
        environment: Mapping[str, str],
        stderr: IO[bytes],
        niceness: int,
    ) -> ForkedProcess:
        """A child that runs a program, which leads a process group.

        Parameters
        ----------
        program : PythonProgram
            What it runs.
        environment : mapping of str to str
            All of the child's.
        stderr : file
            Gets its standard error.
        niceness : int
            By how much it leaves the cores to others.

        Returns
        -------
        ForkedProcess
            There is a process as soon as its server has imported the program; nothing waits for it.
        """
        request = {
            "arguments": program.arguments,
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "niceness": niceness,
        }
        key = _Key.of(program, environment)
        while True:
            with self._lock:
                server = self._of(program, environment)
                server.users += 1
            try:
                return server.fork(request, stderr, partial(self._release, server))
            except ConnectionError:
                # Somebody has killed it; a server that is new is there.
                with self._lock:
                    if self._servers.get(key) is server:
                        del self._servers[key]
                self._release(server)

    def _release(self, server: _Server) -> None:
        with self._lock:
            server.users -= 1
        self._end_unused()

    def _end_unused(self) -> None:
        with self._lock:
            if self._keepers:
                return
            kept = {key: one for key, one in self._servers.items() if one.users}
            unused = [one for key, one in self._servers.items() if key not in kept]
            self._servers = kept
        for server in unused:
            server.close()


@functools.cache
def fork_servers() -> ForkServers:
    """This process's: searches that follow each other, or run at once, share them."""
    # Those of a process that forks are none of its child's.
    os.register_at_fork(after_in_child=fork_servers.cache_clear)
    return ForkServers()
