"""References shared between the backends that are asked to compute the same.

Partitions of several backends with the same operators differ only in how they are annotated. What
they must give is computed once per session and kept on disk, named by content; the files are linked
into each build's folder, so one that is dropped here stays with those who use it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from collage.backends.toolchain.artifact_cache import evict_oldest, made_and_held, size_of

LIMIT_BYTES = 4 << 30
"""What the folder may hold; the ones that were used longest ago go first."""

_UNSEEN_SHARE = 1 / 16
"""Of the limit, that a process adds until it looks at the folder again: with hundreds of references
in it each look takes as long as a candidate's compiler."""


class References:
    """A folder of test data, shared by builder processes; each has one of these for all it builds.

    Parameters
    ----------
    folder : Path
        Made when it is not there.
    limit_bytes : int
        See ``LIMIT_BYTES``. Each process may add a sixteenth of it until it looks.
    """

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._unseen_bytes: float = limit_bytes

    def link(self, key: str, destination: Path, compute: Callable[[Path], None]) -> None:
        """Put the data of that key into a folder, computing it if nobody has.

        Parameters
        ----------
        key : str
            Names the content.
        destination : Path
            Gets what ``compute`` wrote, sub-folders included; same file system.
        compute : callable
            Writes the data into the folder it is given. Whoever asks for the same key meanwhile
            waits for it.
        """

        def make(path: Path) -> None:
            path.mkdir()
            compute(path)
            self._unseen_bytes += size_of(path)

        with made_and_held(self._folder / key, make) as place:
            shutil.copytree(place, destination, copy_function=os.link, dirs_exist_ok=True)
        if self._unseen_bytes > _UNSEEN_SHARE * self._limit_bytes:
            self._unseen_bytes = 0
            evict_oldest(self._folder, self._limit_bytes)
