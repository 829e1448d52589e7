"""References shared between the backends that are asked to compute the same.

Partitions of several backends with the same operators differ only in how they are annotated. What
they must give is computed once per session and kept on disk, named by content; the files are linked
into each build's folder, so one that is dropped here stays with those who use it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

LIMIT_BYTES = 4 << 30
"""What the folder may hold; the ones that were used longest ago go first."""


class References:
    """A folder of test data, shared by builder processes.

    Parameters
    ----------
    folder : Path
        Made when it is not there.
    limit_bytes : int
        See ``LIMIT_BYTES``.
    """

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes

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
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._folder / key
        with FileLock(self._folder / f"{key}.lock"):
            if not place.exists():
                made = Path(tempfile.mkdtemp(dir=self._folder, prefix=".making-"))
                try:
                    compute(made)
                    made.replace(place)
                finally:
                    shutil.rmtree(made, ignore_errors=True)
            os.utime(place)
            shutil.copytree(place, destination, copy_function=os.link, dirs_exist_ok=True)
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        with FileLock(self._folder / ".dropping.lock"):
            entries = [e for e in self._folder.iterdir() if e.is_dir() and e.name[0] != "."]
            ages = {entry: entry.stat().st_mtime for entry in entries}
            sizes = {entry: _size(entry) for entry in entries}
            total = sum(sizes.values())
            for entry in sorted(entries, key=ages.__getitem__):
                if total <= self._limit_bytes:
                    break
                with FileLock(self._folder / f"{entry.name}.lock"):
                    shutil.rmtree(entry)
                total -= sizes[entry]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
