"""A real Ray cluster of several nodes on loopback, each of which may be killed or stopped."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

_MARK = "COLLAGE_TEST_CLUSTER"
_RAY = Path(sys.executable).with_name("ray")


class LoopbackCluster:
    """A head without cores, and nodes that are added; use as a context manager, which ends all.

    Processes are known by a variable of their environment, whatever becomes of their parents, and
    are no children of this one.
    """

    def __init__(self, folder: Path) -> None:
        self._mark = uuid.uuid4().hex
        # Below it are sockets, whose paths may have a hundred characters.
        self._scratch = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self._environment = {
            **os.environ,
            _MARK: self._mark,
            "COLLAGE_CACHE_DIR": str(folder / "far-cache"),
            "TMPDIR": str(folder),
            # Where a token lies in the home folder, Ray asks for it on the head alone.
            "RAY_AUTH_MODE": "disabled",
            "RAY_enable_open_telemetry": "0",
            "RAY_prestart_worker_first_driver": "0",
            "RAY_health_check_period_ms": "1000",
        }
        self._addresses = (f"127.0.0.{number}" for number in itertools.count(2))
        self.port, self.client_port = _free_port(), _free_port()
        self.address = f"127.0.0.2:{self.port}"
        self.client_address = f"ray://127.0.0.2:{self.client_port}"

    def __enter__(self) -> Self:
        try:
            head = ["--head", f"--port={self.port}", f"--ray-client-server-port={self.client_port}"]
            quiet = ["--include-dashboard=false", "--disable-usage-stats"]
            self._start("head", 0, [*head, *quiet], {})
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while found := self.processes():
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(found, timeout=5)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def add(
        self,
        *names: str,
        cpus: int = 8,
        resources: str = "{}",
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        """Start nodes; one after the other, for those of one session get in each other's way."""
        for name in names:
            arguments = [f"--address={self.address}", f"--resources={resources}"]
            self._start(name, cpus, arguments, environment or {}, prefix)

    def _start(
        self,
        name: str,
        cpus: int,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
    ) -> None:
        # Ray takes 127.0.0.1 for the machine's address in its network, and the others as they are.
        address = next(self._addresses)
        command = [str(_RAY), "start", f"--node-ip-address={address}", f"--node-name={name}"]
        command += [f"--num-cpus={cpus}", "--num-gpus=0", f"--object-store-memory={80 << 20}"]
        if "--head" in arguments:
            command += [f"--temp-dir={self._scratch}"]
        for tries_left in (1, 0):
            done = subprocess.run(
                [*prefix, *command, *arguments],
                env={**self._environment, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=180,
                check=False,
            )
            if not done.returncode:
                return
            # On a crowded machine Ray gives a node up that takes half a minute.
            if not tries_left:
                output = done.stdout.decode(errors="replace")
                raise RuntimeError(f"node '{name}' did not start: {output[-2000:]}")

    def processes(self) -> list[psutil.Process]:
        """All of the cluster that are alive, those that actors started included."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(_MARK) == self._mark and _lives(process):
                    found.append(process)
        return found

    def raylet(self, name: str) -> psutil.Process:
        """The process that makes a node."""
        (found,) = [p for p in self.processes() if _is_raylet(p, name)]
        return found

    def node(self, name: str) -> list[psutil.Process]:
        """The raylet of a node, and all that it started."""
        raylet = self.raylet(name)
        return [raylet, *raylet.children(recursive=True)]

    def kill_node(self, name: str) -> None:
        """End a node as a power cut of its raylet would; the rest of it has to notice."""
        self.raylet(name).kill()

    def actors(self, name: str = "") -> list[psutil.Process]:
        """The processes of actors, of one node or of all."""
        among = self.node(name) if name else self.processes()
        return [process for process in among if _title(process).startswith("ray::Host")]

    def signal_node(self, name: str, number: signal.Signals) -> None:
        """Have all of a node stand still, or go on."""
        for process in self.node(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def wait_until_ended(self, processes: list[psutil.Process], limit_sec: float) -> bool:
        """Whether these are gone within that time."""
        end = time.monotonic() + limit_sec
        while any(map(_lives, processes)):
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _is_raylet(process: psutil.Process, name: str) -> bool:
    line = _title(process)
    return "raylet/raylet" in line.split(" ", 1)[0] and f"--node-name={name}" in line.replace(
        "--node_name", "--node-name"
    )


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
