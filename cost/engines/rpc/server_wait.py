"""Waiting for servers while none can be had: for as long as it was said, and telling so."""

from __future__ import annotations

import time

from collage.backends.contract.errors import MeasurementError
from collage.cost.engines.rpc.sessions import RpcSession, Sessions
from collage.cost.measure.runner import PlaceAwayError

_POLL_SEC = 0.5
"""Between two looks for a server."""


class ServerWait:
    """How long there has been no server to work with.

    Parameters
    ----------
    sessions : Sessions
        That a server is wanted for; its ``wait_sec`` is the limit.

    Examples
    --------
    >>> from collage.backends.contract import BuildContext
    >>> from collage.cost.config import MeasureConfig
    >>> from collage.cost.device import CPU_POLICY
    >>> from collage.cost.engines.rpc.sessions import RpcOptions
    >>> from collage.cost.engines.rpc.tracker import Tracker
    >>> from collage.cost.measure.engine import Work
    >>> from pathlib import Path
    >>> work = Work(CPU_POLICY, BuildContext(Path("cache"), Path("work")), MeasureConfig())
    >>> options, guard = RpcOptions("board", wait_sec=0.0), Path("guard.so")
    >>> ServerWait(Sessions(Tracker("10.0.0.3", 9190), options, work, guard)).wait("it has none")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.MeasurementError: no server of key 'board' could be had from \
the tracker at 10.0.0.3:9190 within 0 s: it has none; wait=... gives them longer
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._since: float | None = None

    @property
    def left_sec(self) -> float:
        """How much longer to wait."""
        limit_sec = self._sessions.options.wait_sec
        if self._since is None:
            return limit_sec
        return max(0.0, self._since + limit_sec - time.monotonic())

    def begin(self, reason: str) -> None:
        """Say, unless that was said, that a server is waited for.

        Parameters
        ----------
        reason : str
            Why none can be had.
        """
        if self._since is None:
            self._since = time.monotonic()
            options = self._sessions.options
            self._sessions.work.say(
                f"waiting up to {options.wait_sec:g} s for a server of key '{options.key}' "
                f"at {self._sessions.tracker.address}: {reason}"
            )

    def take(self) -> RpcSession:
        """A session with a server; one that is not to be had at once is said to be waited for.

        Raises
        ------
        PlaceAwayError
            When there is none, or it cannot be used.
        OutOfTimeError
            When the deadline comes first.
        """
        key = self._sessions.options.key
        try:
            summary = self._sessions.tracker.summary(key)
        except MeasurementError as err:
            raise PlaceAwayError(str(err), value=err.value) from err
        if not summary.free:
            count = len(summary.servers)
            self.begin(f"others have all {count} of them" if count else "all of them are away")
        return self._sessions.take(self.left_sec)

    def wait(self, reason: str) -> None:
        """Rest for a moment.

        Parameters
        ----------
        reason : str
            Why no server can be had.

        Raises
        ------
        MeasurementError
            When there has been none for too long.
        OutOfTimeError
            When the deadline comes first.
        """
        self.begin(reason)
        self._sessions.work.deadline.check()
        if not self.left_sec:
            options = self._sessions.options
            raise MeasurementError(
                f"no server of key '{options.key}' could be had from the tracker at "
                f"{self._sessions.tracker.address} within {options.wait_sec:g} s: {reason}; "
                f"wait=... gives them longer",
                value=options.key,
            )
        time.sleep(min(_POLL_SEC, self.left_sec))

    def is_over(self) -> None:
        """Say that there is a server again, if one was waited for."""
        if self._since is not None:
            self._since = None
            options = self._sessions.options
            self._sessions.work.say(f"there is a server of key '{options.key}' again")
