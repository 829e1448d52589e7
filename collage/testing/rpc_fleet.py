"""TVM's RPC tracker and servers on this machine, bound to loopback, for tests and examples.

They are the programs that users run, with nothing but TVM and what it needs on their path.
"""

from __future__ import annotations

import os
import site
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import psutil

from collage.backends.contract.errors import MeasurementError
from collage.cost.engines.rpc.tracker import Tracker

_LOOPBACK = "127.0.0.1"
_START_SEC = 240.0
_POLL_SEC = 0.05


class RpcFleet:
    """A tracker with some servers; use as a context manager, which ends them all.

    Parameters
    ----------
    servers : int
        How many to start.
    key : str
        What they are for.
    tracker : Tracker, optional
        Of another fleet, which has to be there as long as this one.

    Examples
    --------
    >>> with RpcFleet(1, "board") as fleet:
    ...     len(fleet.tracker.summary("board").servers)
    1
    """

    def __init__(self, servers: int, key: str = "board", tracker: Tracker | None = None) -> None:
        self.key = key
        self.servers: list[subprocess.Popen[bytes]] = []
        self._count = servers
        self._stack = ExitStack()
        self._folder = Path()
        self._tracker_process: subprocess.Popen[bytes] | None = None
        self._has_own = tracker is None
        self.tracker = tracker or Tracker(_LOOPBACK, free_port())

    @property
    def url(self) -> str:
        """What a user would write."""
        return f"rpc://{self.tracker.address}?key={self.key}"

    def __enter__(self) -> Self:
        try:
            name = tempfile.TemporaryDirectory(prefix="rpc-fleet-", ignore_cleanup_errors=True)
            self._folder = Path(self._stack.enter_context(name))
            self._link_packages()
            if self._has_own:
                self.start_tracker()
            for _ in range(self._count):
                self.start_server()
            self.wait_for(self._count)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.servers, self._tracker_process]:
            if process is not None:
                end_tree(process)
        self._stack.close()

    def start_tracker(self) -> None:
        """Start it, again if it was ended."""
        host, _, port = self.tracker.address.rpartition(":")
        self._tracker_process = self._start(
            ["rpc_tracker", f"--host={host}", f"--port={port}", f"--port-end={int(port) + 1}"],
            "tracker",
        )
        self._wait(self._tracker_answers, "the tracker")

    def end_tracker(self) -> None:
        """Kill it."""
        assert self._tracker_process is not None
        end_tree(self._tracker_process)

    def add_server(self) -> int:
        """Start another one; returns its number."""
        before = len(self.tracker.summary(self.key).servers)
        self.start_server()
        self.wait_for(before + 1)
        return len(self.servers) - 1

    def kill_server(self, number: int) -> None:
        """End one at once, with its sessions."""
        end_tree(self.servers[number])

    def processes(self, number: int) -> list[psutil.Process]:
        """A server's processes: the one that was started, the one that listens, its sessions."""
        process = psutil.Process(self.servers[number].pid)
        return [process, *process.children(recursive=True)]

    def sessions(self, number: int | None = None) -> list[psutil.Process]:
        """The processes of a server's sessions, or of all: what its server knows, what serves."""
        running = [n for n, server in enumerate(self.servers) if server.poll() is None]
        if number is not None:
            running = [number]
        return [process for number in running for process in self.processes(number)[2:]]

    def wait_for(self, servers: int, free: int | None = None) -> None:
        """Wait until the tracker has so many servers, and so many of them free."""

        def there() -> bool:
            summary = self.tracker.summary(self.key)
            enough = len(summary.servers) == servers
            return enough and (free is None or summary.free == free)

        self._wait(there, f"{servers} servers")

    def start_server(self) -> None:
        """Start another one, without waiting for it."""
        port = free_port()
        arguments = [
            "rpc_server",
            f"--host={_LOOPBACK}",
            f"--port={port}",
            f"--port-end={port + 50}",
            f"--tracker={self.tracker.address}",
            f"--key={self.key}",
        ]
        self.servers.append(self._start(arguments, f"server-{len(self.servers)}"))

    def _start(self, arguments: list[str], name: str) -> subprocess.Popen[bytes]:
        environment = {
            word: value for word, value in os.environ.items() if not word.startswith("PYTHON")
        }
        environment |= {"PYTHONPATH": str(self._folder / "site"), "TMPDIR": str(self._folder)}
        program, *rest = arguments
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [base_python(), "-P", "-m", f"tvm.exec.{program}", *rest],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _link_packages(self) -> None:
        """Everything that is installed here, but for this project."""
        place = self._folder / "site"
        place.mkdir()
        for folder in map(Path, site.getsitepackages()):
            for path in folder.iterdir() if folder.is_dir() else ():
                if "collage" not in path.name.lower() and path.suffix != ".pth":
                    (place / path.name).symlink_to(path)

    def _tracker_answers(self) -> bool:
        try:
            self.tracker.summary(self.key)
        except MeasurementError:
            return False
        return True

    def _wait(self, until: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _START_SEC
        while not until():
            if time.monotonic() > end:
                logs = "\n".join(path.read_text()[-2000:] for path in self._logs())
                raise MeasurementError(f"{what} did not come within {_START_SEC:g} s\n{logs}")
            time.sleep(_POLL_SEC)

    def _logs(self) -> Iterator[Path]:
        yield from sorted(self._folder.glob("*.log"))


def base_python() -> str:
    """The interpreter that a virtual environment stands on, which has none of its packages."""
    return str(getattr(sys, "_base_executable", sys.executable))


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was started here, with all that it started."""
    try:
        tree = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        tree = []
    process.kill()
    for one in tree:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()
    psutil.wait_procs(tree, timeout=5.0)
