"""Memory that a process has freed, returned to the system: its siblings in a search need it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def return_freed_memory() -> None:
    """Return what the allocator keeps because something behind it is still held.

    After a model was imported that is three times its weights. It takes some 0.1 s then, and a
    millisecond where there is little to return. Nothing where the C library cannot.

    Examples
    --------
    >>> return_freed_memory()
    """
    _trim()(0)


@functools.cache
def _trim() -> Callable[[int], object]:
    """The allocator's own function; it is glibc's."""
    return getattr(ctypes.CDLL(None), "malloc_trim", lambda kept_bytes: None)
