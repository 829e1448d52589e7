"""What a host was ordered to do and has not done yet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from collage.backends.devices import DeviceKind
from collage.backends.storage import exclusive
from collage.cost.deadline import Deadline

Files = list[bytes]
"""Archives that travel beside a message."""


class OrderUnderWay:
    """What is under way, since when, and whether it is to be given up."""

    def __init__(self) -> None:
        self.stopped = False
        self.deadline = Deadline(lambda: float("-inf") if self.stopped else float("inf"))
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Time worked on it, waiting left out."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def work(self) -> None:
        """The work on it begins, or begins anew."""
        self._since = time.monotonic()

    @contextmanager
    def holding(self, kind: DeviceKind, index: int = 0) -> Iterator[None]:
        """Hold the device; waiting for it is not working.

        Parameters
        ----------
        kind : DeviceKind
            Of the device.
        index : int
            Which of them.

        Yields
        ------
        None
            Once the device is held; its time of work begins then.
        """
        self._since = None
        with exclusive(kind, None, lambda: self.stopped, index=index):
            self.work()
            yield
