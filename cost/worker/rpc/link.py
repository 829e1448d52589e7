"""A session with TVM's RPC server, and the guard in it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm.rpc

from collage.backends.contract.errors import MeasurementError, telling_line
from collage.cost.base import CostStatus
from collage.cost.processes.messages import Connect
from collage.cost.worker.session import SessionLostError

_WORDS = re.compile(r"\[collage guard\] (\w+): (.*)")

_STATUSES = {
    "crashed": CostStatus.CRASHED,
    "timed_out": CostStatus.TIMED_OUT,
    "out_of_memory": CostStatus.OUT_OF_MEMORY,
}
"""What the guard says of a candidate. Whoever was killed by somebody says nothing about itself."""

_MOST_CHARACTERS = 1 << 20
"""Of a text that a server may answer."""


class Link:
    """Files, libraries and facts of the machine at the other end.

    The first thing that is sent is the guard: from then on the session's process is watched over
    there, and the server survives whatever happens to it.

    Parameters
    ----------
    request : Connect
        Which server, and for how long.

    Raises
    ------
    MeasurementError
        When there is no session to be had.
    """

    def __init__(self, request: Connect) -> None:
        self._name = f"{request.host}:{request.port}"
        try:
            self.rpc = tvm.rpc.connect(
                request.host, request.port, request.match_key, request.session_timeout_sec
            )
            self.rpc.upload(str(request.guard), "guard.so")
            self._guard: Any = self.rpc.load_module("guard.so")
            self._call("start", request.idle_sec, request.data_limit_bytes)
        except (RuntimeError, OSError) as err:
            raise MeasurementError(
                f"no session with {self._name}: {telling_line(err)}", value=self._name
            ) from err
        self._libraries: dict[str, Path] = {}
        self._left_sec = 0.0

    def device(self, kind: str) -> tvm.runtime.Device:
        """The first device of a kind."""
        return self.rpc.device(kind, 0)

    def begin(self, limit_sec: float, limit_bytes: int) -> None:
        """From now on, what runs there may run so long and take so much more memory.

        Parameters
        ----------
        limit_sec : float
            How long.
        limit_bytes : int
            How much.
        """
        self._left_sec = limit_sec
        self._call("begin", limit_sec, limit_bytes)

    @contextmanager
    def running(self) -> Iterator[None]:
        """A context in which something runs there; what happens outside takes none of its time."""
        begin = time.perf_counter()
        self._call("run", self._left_sec)
        yield
        self._call("rest")
        self._left_sec -= time.perf_counter() - begin

    def end(self) -> None:
        """Nothing is under way there."""
        self._call("end")

    def read(self, path: str) -> str:
        """The beginning of a text file of the machine; empty when it cannot be read."""
        return self._text("read", path)

    def machine(self) -> str:
        """The architecture of the machine's processor."""
        return self._text("machine")

    def upload(self, path: Path, name: str) -> None:
        """Copy a file there.

        Parameters
        ----------
        path : Path
            Here.
        name : str
            There.

        Raises
        ------
        SessionLostError
            When the disk there is full, or the session is over: no library is to blame.
        """
        try:
            self.rpc.upload(str(path), name)
        except (RuntimeError, OSError) as err:
            raise self.failed(f"cannot upload {name}: {telling_line(err)}") from err

    def provide(self, path: Path) -> None:
        """Copy a shared library into the folder where others look for it, and load it.

        Raises
        ------
        SessionLostError
            As :meth:`upload` and :meth:`load`, or when another one has that name there.
        """
        name, path = f"lib/{path.name}", path.resolve()
        known = self._libraries.get(name)
        if known == path:
            return
        if known is not None:
            raise self.failed(f"'{name}' is there already, from {known}")
        try:
            self._call("folder", "lib")
        except (RuntimeError, OSError) as err:
            raise self.failed(f"cannot make a folder: {telling_line(err)}") from err
        self.upload(path, name)
        self.load(name)
        self._libraries[name] = path

    def load(self, name: str) -> None:
        """Load a shared library, for those that need it.

        Raises
        ------
        SessionLostError
            When the machine lacks it, or something that it needs; says what.
        """
        try:
            words = self._text("load", name)
        except (RuntimeError, OSError) as err:
            raise self.failed(f"cannot load {name}: {telling_line(err)}") from err
        if words:
            raise self.failed(f"a library is missing there: {words}")

    def time_on_gpu(
        self,
        machine: tvm.runtime.Module,
        buffer: tvm.runtime.Tensor,
        count: int,
        lead_sec: float,
        lead_limit_sec: float,
    ) -> tuple[float, ...]:
        """Seconds of single calls, the launch of each hidden behind what clears the cache.

        Parameters
        ----------
        machine : Module
            A virtual machine there, its inputs set.
        buffer : Tensor
            There, larger than the cache: what is written before each call.
        count : int
            How many.
        lead_sec, lead_limit_sec : float
            How long that writing lasts at least, and at most.

        Returns
        -------
        tuple of float
            Empty where the device's driver is not NVIDIA's.
        """
        words = self._text("time_gpu", machine, buffer, count, lead_sec, lead_limit_sec)
        return tuple(map(float, words.split()))

    def failed(self, reason: str) -> SessionLostError:
        """The error that says that this session is of no use, whatever it was asked to run."""
        return SessionLostError(f"{self._name}: {reason}", CostStatus.UNKNOWN)

    def lost(self, error: Exception) -> SessionLostError | None:
        """Whether the session is over, and what that says of the library that was run."""
        if isinstance(error, SessionLostError):
            return error
        try:
            self.machine()
        except (RuntimeError, OSError):
            words = _WORDS.search(str(error))
            if words is None:
                return self.failed(f"the session was cut: {telling_line(error)}")
            status = _STATUSES.get(words[1], CostStatus.UNKNOWN)
            if status is CostStatus.UNKNOWN:
                return self.failed(f"the session's process {words[2]}")
            return SessionLostError(f"the candidate {words[2]}", status)
        return None

    def _call(self, function: str, *arguments: object) -> object:
        return self._guard[f"collage_guard_{function}"](*arguments)

    def _text(self, function: str, *arguments: object) -> str:
        answer = self._call(function, *arguments)
        if not isinstance(answer, str) or len(answer) > _MOST_CHARACTERS:
            raise self.failed(f"'{function}' gave {type(answer).__name__}, not a text")
        return str(answer)
