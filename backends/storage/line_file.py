"""Files of lines that several processes append to, such as the log."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collage.backends.contract.errors import LogError


@contextmanager
def opened(path: Path, *, read_only: bool) -> Iterator[int]:
    """The file's descriptor, locked against other processes; made when it is not there.

    The lock is on the file itself: no second one that could be left behind.

    Parameters
    ----------
    read_only : bool
        The file must exist then; other readers are let in.

    Raises
    ------
    LogError
        When it cannot be read or, unless ``read_only``, written.
    """
    flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND | os.O_CREAT
    try:
        handle = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH if read_only else fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)
    except OSError as err:
        verb = "read" if read_only else "written"
        raise LogError(f"log '{path}' cannot be {verb}: {err.strerror}", value=str(path)) from err


def read_from(handle: int, offset: int) -> bytes:
    """What an opened file holds from a byte on."""
    size = os.fstat(handle).st_size
    data = b""
    while len(data) < size - offset:
        chunk = os.pread(handle, size - offset - len(data), offset + len(data))
        if not chunk:
            break
        data += chunk
    return data


def append_line(handle: int, line: str) -> None:
    """Add a line to a file opened for writing; it is on disk when this returns.

    After a torn line, which a process left that was killed while it wrote, it begins a new one.
    """
    data = line.encode() + b"\n"
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        data = b"\n" + data
    written = 0
    while written < len(data):
        written += os.write(handle, data[written:])
    os.fsync(handle)
