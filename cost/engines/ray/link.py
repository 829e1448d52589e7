"""One host as the head sees it: orders go there, replies come, and silence is noticed."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from collage.backends.contract.errors import OutOfTimeError, ProtocolError
from collage.cost.deadline import NEVER, Deadline
from collage.cost.engines.ray.cluster import Cluster, Node
from collage.cost.engines.ray.messages import (
    AnyOrder,
    AnyReply,
    HostSettings,
    Order,
    Pulse,
    TimeIsUp,
    Trouble,
)
from collage.cost.measure.runner import PlaceAwayError, PlaceLostError
from collage.cost.processes.protocol import decode, encode
from collage.cost.progress import ProgressCallback, ignore

LOOK_SEC = 0.5
"""How long a reply is waited for before deadlines and pulses are looked at."""

_PULSE_SEC = 2.0
_CONTROL_CALLS = 4
"""Of a host's calls at the same time: pulses and stops must not wait for what takes long."""

_START_SEC = 120.0
_REPLY_BYTES = 512 << 20
"""Files not included; findings are, some of which hold a library's serialized plans."""

_GIVE_UP_SEC = 20.0
"""How long a host may take to give up what is under way."""


class Link:
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
    served : bool
        Whether it ever did what it was ordered to.
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
        self.served = False
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
        self._pulse: Any = None
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

        Parameters
        ----------
        wait_sec : float
            How long to wait for it.

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

    def begin(self, order: Order, files: Sequence[bytes] = (), limit_sec: float = 0.0) -> Any:
        """Hand over an order; a reference to the reply, for :meth:`finish`.

        Parameters
        ----------
        order : Order
            What to do.
        files : sequence of bytes
            Archives.
        limit_sec : float
            Longer than this nobody works on it who is well; 0 when nobody can tell.

        Returns
        -------
        object
            A reference of Ray's; nothing is waited for.

        Raises
        ------
        PlaceLostError
            When it is of no use any more.
        """
        self.start()
        number = next(self._numbers)
        if limit_sec:
            self._limits[str(number)] = limit_sec
        with self._lock:
            if self._actor is None:
                raise PlaceLostError("it was closed", value=self.name)
            with self._guarded():
                return self._actor.do.remote(number, encode(order), *files)

    def finish(self, reference: Any) -> tuple[AnyReply, list[bytes]]:
        """The reply, which is there, and archives.

        Raises
        ------
        PlaceLostError
            When there is none, or it cannot be read; the host is of no use any more.
        OutOfTimeError
            When the host was told to stop.
        """
        answer = self._get(reference)
        try:
            text, *files = answer
            if len(text) > _REPLY_BYTES or not all(isinstance(one, bytes) for one in files):
                raise ProtocolError(f"a reply of {len(text)} bytes", value=len(text))
            reply: AnyReply = decode(text, AnyReply)
        except (ProtocolError, TypeError, ValueError) as err:
            raise self.lose(f"its reply cannot be read: {err}") from err
        if isinstance(reply, TimeIsUp):
            raise OutOfTimeError("the time is spent")
        if isinstance(reply, Trouble):
            raise self.lose(reply.reason)
        self.served = True
        return reply, files

    def ask(
        self,
        order: AnyOrder,
        files: Sequence[bytes] = (),
        deadline: Deadline = NEVER,
        progress: ProgressCallback = ignore,
        limit_sec: float = 0.0,
    ) -> AnyReply:
        """Hand over an order and wait for the reply.

        Parameters
        ----------
        order, files, limit_sec
            As :meth:`begin` takes them.
        deadline : Deadline
            When it comes, the host is told to give up.
        progress : callable
            Told what the host tells.

        Returns
        -------
        AnyReply
            Without the files that came with it.

        Raises
        ------
        PlaceLostError
            When the host does not answer, or cannot do it.
        PlaceAwayError
            When it was not there to begin with.
        OutOfTimeError
            When it gave up.
        """
        try:
            self._wait_until_ready(deadline)
            reference = self.begin(order, files, limit_sec)
        except PlaceLostError as err:
            raise PlaceAwayError(str(err), value=err.value) from err
        given_up: float | None = None
        while not self._done([reference], LOOK_SEC):
            self.check(progress)
            if deadline.is_up:
                given_up = given_up or time.monotonic()
                self.stop()
                if time.monotonic() - given_up > _GIVE_UP_SEC:
                    self.lose("it did not give up when its time was up")
                    raise OutOfTimeError("the time is spent")
        self.check(progress)
        return self.finish(reference)[0]

    def _wait_until_ready(self, deadline: Deadline) -> None:
        """Those that were never ready are not asked; one that was closed has to start anew."""
        begin = time.monotonic()
        while not self.is_ready(LOOK_SEC):
            deadline.check()
            if time.monotonic() - begin > _START_SEC:
                raise self.lose(f"it did not start within {_START_SEC:g} s")

    def check(self, progress: ProgressCallback = ignore) -> None:
        """Look for signs of life, and that nothing takes forever.

        Parameters
        ----------
        progress : callable
            Told what the host tells.

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
            if self._pulse is None:
                if now - self._asked_at >= _PULSE_SEC:
                    with self._guarded():
                        self._pulse, self._asked_at = self._actor.pulse.remote(), now
                return
            if not self._done([self._pulse], 0.0):
                if now - self._asked_at > self._patience_sec:
                    raise self.lose(f"it gave no sign of life for {self._patience_sec:g} s")
                return
            answer, self._pulse, self._asked_at = self._get(self._pulse), None, now
        pulse = self._read_pulse(answer)
        for event in pulse.progress:
            progress(event)
        for number, seconds in pulse.working.items():
            if seconds > self._limits.get(number, float("inf")):
                raise self.lose(f"it has been at one candidate for {seconds:.0f} s")

    def _read_pulse(self, answer: bytes) -> Pulse:
        try:
            pulse: Pulse = decode(answer, Pulse)
        except ProtocolError as err:
            raise self.lose(f"its sign of life cannot be read: {err}") from err
        return pulse

    def call(self, method: Callable[[Any], Any], deadline: Deadline = NEVER) -> Any:
        """What a short method of the host gives.

        Parameters
        ----------
        method : callable
            Calls it on the actor.
        deadline : Deadline
            How long to wait.

        Returns
        -------
        object
            Whatever that method returns.

        Raises
        ------
        PlaceLostError, OutOfTimeError
            As :meth:`ask`.
        """
        self._wait_until_ready(deadline)
        with self._guarded():
            reference = method(self._actor)
        while not self._done([reference], LOOK_SEC):
            self.check()
            deadline.check()
        return self._get(reference)

    def stop(self) -> None:
        """Tell the host to give up what is under way; nobody waits for that."""
        with self._lock:
            if self._actor is not None and not self.lost:
                with contextlib.suppress(*self._cluster.errors):
                    self._actor.stop.remote()

    def rest(self, order: Order, wait_sec: float = 5.0) -> None:
        """Have the host do something before it is left alone, if it is there.

        Parameters
        ----------
        order : Order
            What to do.
        wait_sec : float
            How long to wait for it.
        """
        if self._ready and not self.lost:
            with contextlib.suppress(PlaceLostError):
                self._done([self.begin(order)], wait_sec)

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
        self._actor = self._hello = self._pulse = None
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
