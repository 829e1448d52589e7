"""A child as its parent holds it, whoever is its parent to the system."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from collage.backends.toolchain.children.fork_loop import BEGAN

_REAPED_SEC = 1.0
_LOOK_SEC = 0.1
"""Another thread may have read meanwhile what this one waits for."""


class HeldProcess(ABC):
    """A process with pipes to its standard input and output.

    Attributes
    ----------
    stdin, stdout : file
        Unbuffered.
    returncode : int or None
        Its exit status once it was waited for; negative for the signal that ended it.
    """

    stdin: IO[bytes]
    stdout: IO[bytes]
    returncode: int | None

    @property
    @abstractmethod
    def pid(self) -> int:
        """Of the child; waits until there is one."""

    @property
    @abstractmethod
    def is_started(self) -> bool:
        """Whether there is a process; :attr:`pid` need not wait then."""

    @abstractmethod
    def has_ended(self, *, wait: bool) -> bool:
        """Whether it has; until it is waited for, its number stays its own.

        Parameters
        ----------
        wait : bool
            Until it has.
        """

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it, or to its group if it has one of its own; nothing to a dead one."""

    @abstractmethod
    def wait(self) -> int:
        """Its exit status, when it has ended."""

    def release(self) -> None:  # noqa: B027 (nothing to give back is a good answer)
        """It was waited for, and nobody asks any more."""


class SpawnedProcess(HeldProcess):
    """A child of this process.

    Parameters
    ----------
    command : sequence of str
        What to run.
    environment : mapping of str to str
        All of the child's.
    stderr : file
        Gets its standard error.
    own_group : bool
        Whether it leads a process group.
    niceness : int
        By how much it leaves the cores to others.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stderr: IO[bytes],
        *,
        own_group: bool,
        niceness: int,
    ) -> None:
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            env=dict(environment),
            start_new_session=own_group,
        )
        if niceness:
            # From here, for code between fork and exec is not safe beside threads. One that has
            # ended already is a zombie, whose priority may be set, too.
            own = os.getpriority(os.PRIO_PROCESS, self._process.pid)
            os.setpriority(os.PRIO_PROCESS, self._process.pid, own + niceness)
        self._kill = os.killpg if own_group else os.kill
        assert self._process.stdin is not None and self._process.stdout is not None
        self.stdin, self.stdout = self._process.stdin, self._process.stdout

    @property
    def returncode(self) -> int | None:  # type: ignore[override]
        return self._process.returncode

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_started(self) -> bool:
        return True

    def has_ended(self, *, wait: bool) -> bool:
        if self._process.returncode is not None:
            return True
        options = os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG)
        try:
            return os.waitid(os.P_PID, self.pid, options) is not None
        except ChildProcessError:
            return True  # Another thread has just killed it.

    def signal(self, number: signal.Signals) -> None:
        # Once it was waited for, its number may be another's.
        if self._process.returncode is None:
            # Another thread may kill it at the same time.
            with contextlib.suppress(ProcessLookupError):
                self._kill(self._process.pid, number)

    def wait(self) -> int:
        return self._process.wait()


class ForkedProcess(HeldProcess):
    """A child of a fork server's, which leads a process group.

    Parameters
    ----------
    status : socket
        On which the child says its number, and then the server how it ended. Once this end is
        closed, the server kills it if it has not.
    stdin, stdout : file
        This side of its pipes.
    lost : callable
        The status of a child whose server is gone.
    released : callable
        Called once by :meth:`release`.
    """

    def __init__(
        self,
        status: socket.socket,
        stdin: IO[bytes],
        stdout: IO[bytes],
        lost: Callable[[], int],
        released: Callable[[], None],
    ) -> None:
        self.stdin, self.stdout = stdin, stdout
        self.returncode: int | None = None
        self._status = status
        self._lost = lost
        self._released: Callable[[], None] | None = released
        self._pid: int | None = None
        self._ended_with: int | None = None
        self._reading = threading.Lock()

    @property
    def pid(self) -> int:
        while not self.is_started and self._ended_with is None:
            select.select([self._status], [], [], _LOOK_SEC)
        # No process has the number 0: it died before it could say its own.
        return self._pid or 0

    @property
    def is_started(self) -> bool:
        self._read()
        return self._pid is not None

    def has_ended(self, *, wait: bool) -> bool:
        while self.returncode is None:
            self._read()
            if self._ended_with is not None:
                return True
            if not wait:
                return False
            select.select([self._status], [], [], _LOOK_SEC)
        return True

    def signal(self, number: signal.Signals) -> None:
        if self.returncode is not None:
            return
        if not self.is_started and number in (signal.SIGKILL, signal.SIGCONT):
            # There may be no process yet, and no wish to wait for one: nobody has stopped it, and
            # the server sees to its end.
            if number is signal.SIGKILL:
                self._give_up()
                self._ended_with = -signal.SIGKILL
        elif pid := self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)

    def wait(self) -> int:
        self.has_ended(wait=True)
        if self.returncode is None:
            self.returncode = self._ended_with
        assert self.returncode is not None
        return self.returncode

    def release(self) -> None:
        released, self._released = self._released, None
        if released is not None:
            self._give_up()
            # Until the server has taken it from the process list, which takes no time.
            select.select([self._status], [], [], _REAPED_SEC if self._pid else 0.0)
            self._status.close()
            released()

    def _give_up(self) -> None:
        """The server kills it unless it has ended, and forgets it."""
        with contextlib.suppress(OSError):
            self._status.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        """Take note of what was said, without waiting."""
        with self._reading:
            while self._ended_with is None and self.returncode is None:
                try:
                    said = self._status.recv(64, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return
                except ConnectionError:
                    said = b""
                if not said:
                    self._ended_with = self._lost()
                    return
                what, number = said.decode().split()
                # One that is killed at once ends without a word.
                if what == BEGAN:
                    self._pid = int(number)
                else:
                    self._ended_with = int(number)
