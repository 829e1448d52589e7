"""A host's life: it is started when it is needed, and given up for good when it is silent."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from collage.backends.contract.errors import ProtocolError
from collage.cost.deadline import Deadline
from collage.cost.engines.ray.cluster import Cluster, Node
from collage.cost.engines.ray.messages import (
    Heartbeat,
    HostSettings,
)
from collage.cost.measure.runner import PlaceLostError
from collage.cost.processes.protocol import decode, encode
from collage.cost.progress import ProgressCallback, ignore

LOOK_SEC = 0.5
"""How long a reply is waited for before deadlines and pulses are looked at."""

_PULSE_SEC = 2.0
_CONTROL_CALLS = 4
"""Of a host's calls at the same time: pulses and stops must not wait for what takes long."""

_START_SEC = 120.0


class HostLife:
    """A host on a node, started when it is needed.

    Parameters
    ----------
    cluster : Cluster
        Connected while this is used.
    node : Node
        Where the host is to be.
    name : str
        For messages and the report.
    settings : HostSettings
        What the host is started for.
    resources : mapping of str to float
        That it takes of the node.
    patience_sec : float
        How long it may give no sign of life.
    connect : callable
        Makes sure that the cluster is connected, before a host is started.

    Attributes
    ----------
    born : int
        How often a host was started.
    lost : str
        Why it is of no use any more; empty while it is. Ray never restarts it, and neither do we:
        whoever looks after the nodes makes another one.
    """

    def __init__(
        self,
        cluster: Cluster,
        node: Node,
        name: str,
        settings: HostSettings,
        resources: Mapping[str, float],
        patience_sec: float,
        connect: Callable[[], None],
    ) -> None:
        self.node, self.name, self.settings = node, name, settings
        self.lost = ""
        self.born = 0
        self._connect = connect
        self._closed = False
        self._cluster, self._resources, self._patience_sec = cluster, resources, patience_sec
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._limits: dict[str, float] = {}
        self._actor: Any = None
        self._hello: Any = None
        self._ready = False
        self._heartbeat: Any = None
        self._asked_at = 0.0

    def start(self) -> None:
        """Have it started, if it is not, without waiting for it.

        Raises
        ------
        PlaceLostError
            When it is of no use any more.
        """
        if self._actor is None:
            self._connect()
        with self._lock:
            if self.lost:
                raise PlaceLostError(self.lost, value=self.name)
            if self._actor is None:
                self._closed = False
                self.born += 1
                concurrency = max(1, 2 * self.settings.builds) + _CONTROL_CALLS
                self._actor = self._cluster.start_host(
                    self.node, encode(self.settings), concurrency, self._resources
                )
                self._hello = self._actor.hello.remote()

    def is_ready(self, wait_sec: float = 0.0) -> bool:
        """Whether the host is there; starts it when it is not.

        Raises
        ------
        PlaceLostError
            When it cannot be started.
        """
        self.start()
        hello = self._hello
        if not self._ready and hello is not None and self._done([hello], wait_sec):
            self._get(hello)
            with self._lock:
                self._ready, self._asked_at = True, time.monotonic()
        return self._ready

    def _wait_until_ready(self, deadline: Deadline) -> None:
        """Those that were never ready are not asked; one that was closed has to start anew."""
        begin = time.monotonic()
        while not self.is_ready(LOOK_SEC):
            deadline.check()
            if time.monotonic() - begin > _START_SEC:
                raise self.lose(f"it did not start within {_START_SEC:g} s")

    def check(self, progress: ProgressCallback = ignore) -> None:
        """Look for signs of life, and that nothing takes forever.

        Raises
        ------
        PlaceLostError
            When there is none.
        """
        with self._lock:
            if self.lost:
                raise PlaceLostError(self.lost, value=self.name)
            if not self._ready:
                return
            now = time.monotonic()
            if self._heartbeat is None:
                if now - self._asked_at >= _PULSE_SEC:
                    with self._guarded():
                        self._heartbeat, self._asked_at = self._actor.heartbeat.remote(), now
                return
            if not self._done([self._heartbeat], 0.0):
                if now - self._asked_at > self._patience_sec:
                    raise self.lose(f"it gave no sign of life for {self._patience_sec:g} s")
                return
            answer, self._heartbeat, self._asked_at = self._get(self._heartbeat), None, now
        heartbeat = self._read_heartbeat(answer)
        for event in heartbeat.progress:
            progress(event)
        for number, seconds in heartbeat.working.items():
            if seconds > self._limits.get(number, float("inf")):
                raise self.lose(f"it has been at one candidate for {seconds:.0f} s")

    def _read_heartbeat(self, answer: bytes) -> Heartbeat:
        try:
            heartbeat: Heartbeat = decode(answer, Heartbeat)
        except ProtocolError as err:
            raise self.lose(f"its sign of life cannot be read: {err}") from err
        return heartbeat

    def lose(self, reason: str) -> PlaceLostError:
        """Give the host up for good.

        Returns
        -------
        PlaceLostError
            To be raised.
        """
        with self._lock:
            self.lost = self.lost or reason
            self._kill()
            return PlaceLostError(self.lost, value=self.name)

    def close(self, wait_sec: float = 5.0) -> None:
        """End the host and all that it started; the next order starts it anew."""
        with self._lock:
            self._closed = True
            if self._ready and not self.lost:
                # It deletes its files; whether it does or not, its processes end with it.
                with contextlib.suppress(*self._cluster.errors):
                    self._done([self._actor.close.remote()], wait_sec)
            self._kill()

    def _kill(self) -> None:
        if self._actor is not None:
            with contextlib.suppress(*self._cluster.errors):
                self._cluster.ray.kill(self._actor)
        self._actor = self._hello = self._heartbeat = None
        self._ready = False

    def _done(self, references: list[Any], wait_sec: float) -> bool:
        with self._guarded():
            ready, _ = self._cluster.ray.wait(references, timeout=wait_sec)
        return bool(ready)

    def _get(self, reference: Any) -> Any:
        with self._guarded():
            return self._cluster.ray.get(reference)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except self._cluster.errors as err:
            if self._closed:
                raise PlaceLostError("it was closed", value=self.name) from err
            raise self.lose(_reason(err)) from err


def _reason(error: Exception) -> str:
    """What befell an actor, in one line; of one that could not be made, what it said."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    return lines[-1] if "creation task" in lines[0] else lines[0]
