"""A line to servers that can be cut, by closing sockets."""

from __future__ import annotations

import math
import socket
import struct
import threading
from typing import Self


class CuttableProxy:
    """Passes bytes on, to as many servers as it is asked for; use as a context manager."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int], socket.socket] = {}
        self._lines: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._left = math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners.values():
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def port_for(self, host: str, port: int) -> int:
        """Where a server is reached through this."""
        if (host, port) not in self._listeners:
            listener = socket.create_server(("127.0.0.1", 0))
            self._listeners[host, port] = listener
            self._start(self._accept, listener, (host, port))
        return int(self._listeners[host, port].getsockname()[1])

    def cut_after(self, size: int) -> None:
        """Cut all lines once so many more bytes have gone to servers."""
        with self._lock:
            self._left = size

    def cut(self) -> None:
        """Cut all lines now, without a farewell."""
        with self._lock:
            lines, self._lines, self._left = self._lines, set(), math.inf
        for line in lines:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
            finally:
                line.close()

    def _start(self, act: object, *arguments: object) -> None:
        thread = threading.Thread(target=act, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, address: tuple[str, int]) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(address)
            with self._lock:
                self._lines |= {near, far}
            self._start(self._pass_on, near, far, True)
            self._start(self._pass_on, far, near, False)

    def _pass_on(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        try:
            while data := source.recv(1 << 12):
                sink.sendall(data)
                if counts and self._spend(len(data)):
                    self.cut()
        except OSError:
            pass  # It was cut.
        for line in (source, sink):
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _spend(self, size: int) -> bool:
        with self._lock:
            self._left -= size
            return self._left <= 0
