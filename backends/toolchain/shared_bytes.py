"""Constants of several models in one piece of memory, each of them once."""

from __future__ import annotations

import hashlib
import io
import tempfile
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 64


class SharedBytes:
    """Bytes that are found by their place among all.

    Parameters
    ----------
    folder : Path, optional
        Of a file for them, which nobody else sees: they are hundreds of megabytes, and in memory
        only while they are read. By default they are held.

    Examples
    --------
    >>> shared = SharedBytes()
    >>> shared.place(b"abcd"), shared.place(b"efgh"), shared.place(b"abcd")
    (0, 64, 0)
    >>> len(shared.data())
    68
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._places: dict[bytes, int] = {}
        # Gives what it holds without a copy.
        self._held = io.BytesIO()
        self._file = _file_in(folder)

    def place(self, piece: bytes | memoryview) -> int:
        """Where a piece stands, put there unless it is there already: a multiple of 64."""
        key = hashlib.sha256(piece).digest()
        if key not in self._places:
            held = self._file or self._held
            held.write(bytes(-held.tell() % _ALIGNMENT))
            self._places[key] = held.tell()
            held.write(piece)
        return self._places[key]

    def data(self) -> NDArray[np.uint8]:
        """All pieces as one; 64 zeros where there is none. Not to be written to."""
        if self._file is not None and self._file.tell():
            self._file.flush()
            return np.memmap(self._file, np.uint8, "r")
        return np.frombuffer(self._held.getvalue() or bytes(_ALIGNMENT), np.uint8)


def _file_in(folder: Path | None) -> IO[bytes] | None:
    return None if folder is None else tempfile.TemporaryFile(dir=folder)
