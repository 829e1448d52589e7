"""One host as the head sees it: orders go there, replies come."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from collage.backends.contract.errors import OutOfTimeError, ProtocolError
from collage.cost.deadline import NEVER, Deadline
from collage.cost.engines.ray.life import LOOK_SEC, HostLife
from collage.cost.engines.ray.messages import (
    AnyOrder,
    AnyReply,
    Order,
    TimeIsUp,
    WorkerFailure,
)
from collage.cost.measure.runner import PlaceAwayError, PlaceLostError
from collage.cost.processes.protocol import decode, encode
from collage.cost.progress import ProgressCallback, ignore

_REPLY_BYTES = 512 << 20
"""Files not included; findings are, some of which hold a library's serialized plans."""

_GIVE_UP_SEC = 20.0
"""How long a host may take to give up what is under way."""


class Link(HostLife):
    """A host on a node that is given orders.

    It is made as :class:`~collage.cost.engines.ray.life.HostLife` is, and started by the first
    order.

    Attributes
    ----------
    served : bool
        Whether it ever did what it was ordered to.
    """

    served = False

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
        if isinstance(reply, WorkerFailure):
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
