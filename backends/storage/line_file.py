"""Files of lines that several processes append to, such as the log."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract.errors import LogError

_CHUNK_BYTES = 16 << 20
"""How much of a file is read at once: a log may be larger than the memory."""

_RECORD = re.compile(rb'\A\{(?:"|\Z)|^[ \t]*\{[ \t]*"[a-z_]+"[ \t]*:', re.MULTILINE)
"""How a line of a log begins; the first one may be torn anywhere."""

_TAIL_BYTES = 64
"""How much of what was read is compared, to see whether a file was replaced."""


@contextmanager
def opened(path: Path, *, read_only: bool) -> Iterator[int]:
    """The file's descriptor, locked against other processes; made when it is not there.

    The lock is on the file itself: no second one that could be left behind.

    Parameters
    ----------
    path : Path
        The file; its folder must exist.
    read_only : bool
        The file must exist then; other readers are let in.

    Yields
    ------
    int
        Valid, and locked, until the context ends.

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


@contextmanager
def reading(path: Path) -> Iterator[int]:
    """The descriptor of a file that others may append to meanwhile.

    Raises
    ------
    LogError
        When it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as err:
        raise LogError(f"log '{path}' cannot be read: {err.strerror}", value=str(path)) from err
    try:
        yield handle
    finally:
        os.close(handle)


def read_bytes(handle: int, offset: int, size: int) -> bytes:
    """Bytes of an opened file; fewer where it ends.

    Parameters
    ----------
    handle : int
        From :func:`opened`.
    offset, size : int
        Where they begin, and how many they are.

    Returns
    -------
    bytes
        At most ``size`` of them.
    """
    data = b""
    while len(data) < size:
        chunk = os.pread(handle, size - len(data), offset + len(data))
        if not chunk:
            break
        data += chunk
    return data


def check_is_log(path: Path) -> None:
    """See that a file that is there is a log, or empty, before anything is appended to it.

    Lines that were torn or damaged are no reason to doubt it: one that begins as a record is
    enough.

    Parameters
    ----------
    path : Path
        The file; it need not exist.

    Raises
    ------
    LogError
        When it is something else, a model for example; or cannot be read.

    Examples
    --------
    >>> Path("notes.txt").write_text("Buy milk")
    8
    >>> check_is_log(Path("notes.txt"))
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.LogError: 'notes.txt' is no log: no line of it begins as a \
record does; name another file
    """
    if not path.is_file():
        return
    with reading(path) as handle:
        offset, is_empty = 0, True
        while chunk := os.pread(handle, _CHUNK_BYTES, offset):
            if _RECORD.search(chunk):
                return
            is_empty = is_empty and not chunk.strip()
            offset += len(chunk)
    if not is_empty:
        raise LogError(
            f"'{path}' is no log: no line of it begins as a record does; name another file",
            value=str(path),
        )


def append_line(handle: int, line: str) -> None:
    """Add a line, or several, to a file opened for writing; on disk when this returns.

    After a torn line, which a process left that was killed while it wrote, it begins a new one.

    Parameters
    ----------
    handle : int
        From :func:`opened`.
    line : str
        Without its end.
    """
    data = line.encode() + b"\n"
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        data = b"\n" + data
    written = 0
    while written < len(data):
        written += os.write(handle, data[written:])
    os.fsync(handle)


@dataclass(frozen=True)
class Line:
    """A complete line of a file.

    Attributes
    ----------
    number : int
        Counted from 1.
    offset : int
        Of its first byte.
    content : bytes
        Without its end.
    """

    number: int
    offset: int
    content: bytes


class LineReader:
    """Reads each line of a growing file once.

    What has no end stays unread: whoever appends next makes it a line of its own.

    Attributes
    ----------
    num_lines : int
        Lines read so far.
    is_torn : bool
        Whether the file, when it was last read, did not end with the end of a line.
    """

    def __init__(self) -> None:
        self.num_lines = 0
        self.is_torn = False
        self._offset = 0
        self._file = (0, 0)
        self._tail = b""

    def new_lines(self, handle: int) -> Iterator[Line]:
        """The lines that were appended since the last call; to be read to their end."""
        found = os.fstat(handle)
        self._file = (found.st_dev, found.st_ino)
        rest, position = b"", self._offset
        while chunk := read_bytes(handle, position, min(_CHUNK_BYTES, found.st_size - position)):
            position += len(chunk)
            *complete, rest = (rest + chunk).split(b"\n")
            for content in complete:
                self.num_lines += 1
                yield Line(self.num_lines, self._offset, content)
                self._offset += len(content) + 1
        self.is_torn = bool(rest)
        size = min(_TAIL_BYTES, self._offset)
        self._tail = read_bytes(handle, self._offset - size, size)

    def is_continued_by(self, handle: int) -> bool:
        """Whether a file is the one that was read, with what was read at its beginning."""
        found = os.fstat(handle)
        size = len(self._tail)
        return self._offset == 0 or (
            self._file == (found.st_dev, found.st_ino)
            and read_bytes(handle, self._offset - size, size) == self._tail
        )
