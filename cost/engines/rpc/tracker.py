"""A client of TVM's RPC tracker that never waits longer than it was told to.

The tracker's protocol (``tvm/rpc/tracker.py``): a magic number both ways, then JSON behind its
length in four bytes. TVM's own client waits forever for a server that is free, and for a minute for
a tracker that is not there.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from collage.backends.contract.errors import MeasurementError
from collage.cost.deadline import NEVER, Deadline

_MAGIC = 0x2F271
_REQUEST, _SUMMARY = 4, 6
_SUCCESS = 0
_CONNECT_SEC = 10.0
"""For a connection, and for an answer that nothing has to be waited for."""

_POLL_SEC = 0.1
_MOST_BYTES = 1 << 24
_SERVER = "server:"


class _Queue(msgspec.Struct):
    free: int
    pending: int


class _Server(msgspec.Struct):
    key: str
    addr: tuple[str | None, int]


class _Summary(msgspec.Struct):
    queue_info: dict[str, _Queue]
    server_info: list[_Server]


@dataclass(frozen=True)
class Grant:
    """A server that the tracker gave away, to whoever connects with its key.

    Examples
    --------
    >>> Grant("10.0.0.3", 9090, "h100:0.25").address
    '10.0.0.3:9090'
    """

    host: str
    port: int
    match_key: str

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Summary:
    """What a tracker has of one key.

    Attributes
    ----------
    servers : tuple of str
        Addresses of those that are there, free or not.
    free : int
        How many nobody has.
    pending : int
        Requests that wait for one.
    keys : mapping of str to int
        Servers of each key that there is.

    Examples
    --------
    >>> Summary(("10.0.0.3:9090",), free=0, pending=2, keys={"h100": 1}).free
    0
    """

    servers: tuple[str, ...]
    free: int
    pending: int
    keys: dict[str, int]


class Tracker:
    """TVM's RPC tracker at an address.

    Parameters
    ----------
    host, port : str, int
        Where it listens.

    Examples
    --------
    >>> Tracker("127.0.0.1", 1).summary("h100")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.MeasurementError: no RPC tracker at 127.0.0.1:1: ...
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.address = f"{host}:{port}"

    def summary(self, key: str) -> Summary:
        """What there is of a key now.

        Raises
        ------
        MeasurementError
            When there is no tracker.
        """
        with self._talking() as line:
            self._send(line, [_SUMMARY])
            answer = self._receive(line)
            try:
                found = msgspec.convert(_value(answer), _Summary)
            except (msgspec.ValidationError, ValueError) as err:
                raise self._no_tracker(f"it gave no summary: {err}") from err
        queue = found.queue_info.get(key, _Queue(0, 0))
        keys = Counter(one.key.removeprefix(_SERVER) for one in found.server_info)
        return Summary(
            tuple(
                f"{one.addr[0]}:{one.addr[1]}"
                for one in sorted(
                    found.server_info, key=lambda one: (str(one.addr[0]), one.addr[1])
                )
                if one.key == f"{_SERVER}{key}"
            ),
            queue.free,
            queue.pending,
            dict(sorted(keys.items())),
        )

    def request(
        self, key: str, priority: int, wait_sec: float, deadline: Deadline = NEVER
    ) -> Grant | None:
        """A server of a key; None when none is free until then.

        Parameters
        ----------
        key : str
            Of servers.
        priority : int
            Those of a higher one are served first.
        wait_sec : float
            How long to wait for one.
        deadline : Deadline, optional
            When to give up.

        Returns
        -------
        Grant or None
            None when the time of waiting has passed.

        Raises
        ------
        MeasurementError
            When there is no tracker.
        OutOfTimeError
            When the deadline comes first.
        """
        until = time.monotonic() + wait_sec
        with self._talking() as line:
            self._send(line, [_REQUEST, key, "collage", priority])
            while not select.select([line], [], [], _POLL_SEC)[0]:
                deadline.check()
                if time.monotonic() > until:
                    # The tracker sees the line closed, and gives the server to another.
                    return None
            answer = self._receive(line)
            try:
                host, port, match_key = msgspec.convert(_value(answer), tuple[str, int, str])
            except (msgspec.ValidationError, ValueError) as err:
                raise self._no_tracker(f"it gave no server: {err}") from err
        return Grant(host, port, match_key)

    @contextmanager
    def _talking(self) -> Iterator[socket.socket]:
        try:
            with socket.create_connection((self._host, self._port), _CONNECT_SEC) as line:
                line.sendall(struct.pack("<i", _MAGIC))
                (magic,) = struct.unpack("<i", _exactly(line, 4))
                if magic != _MAGIC:
                    raise self._no_tracker("something else listens there")
                yield line
        except OSError as err:
            raise self._no_tracker(str(err) or type(err).__name__) from err

    def _send(self, line: socket.socket, message: object) -> None:
        data = json.dumps(message).encode()
        line.sendall(struct.pack("<i", len(data)) + data)

    def _receive(self, line: socket.socket) -> Any:
        (size,) = struct.unpack("<i", _exactly(line, 4))
        if not 0 < size <= _MOST_BYTES:
            raise self._no_tracker(f"it sent a message of {size} bytes")
        try:
            return json.loads(_exactly(line, size))
        except ValueError as err:
            raise self._no_tracker(f"it sent no JSON: {err}") from err

    def _no_tracker(self, why: str) -> MeasurementError:
        return MeasurementError(f"no RPC tracker at {self.address}: {why}", value=self.address)


def _value(answer: Any) -> Any:
    """What an answer holds that begins with a code."""
    if not isinstance(answer, list) or len(answer) != 2 or answer[0] != _SUCCESS:
        raise ValueError(f"{str(answer)[:80]} is no answer")
    return answer[1]


def _exactly(line: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = line.recv(min(size - len(data), 1 << 16))
        if not part:
            raise ConnectionResetError("the connection was closed")
        data += part
    return bytes(data)
