"""Child processes that can be interrupted, however the tests themselves were started."""

from __future__ import annotations

import signal


def interruptible() -> None:
    """For ``preexec_fn``: background jobs of a shell ignore SIGINT, and so do their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
