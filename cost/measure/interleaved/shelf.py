"""Built candidates that were timed, for as long as somebody may want to time them again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from collage.backends.contract.errors import OutputError
from collage.cost.database.record import RecordKey

_MOST_BYTES = 2 << 30
"""Of the disk. What was built first goes first; it can be built anew."""


class Shelf:
    """Folders of built candidates, by the keys of their records.

    Parameters
    ----------
    folder : callable
        Gives the scratch folder, on the same disk as what is kept.
    most_bytes : int
        What it may hold.

    Examples
    --------
    >>> from collage.cost.database.record import PARTITION
    >>> facts = ("5f1c", "8x8:float32", '{"backend": "tvm"}', (), "g++ 12.2", "0.22", "Some CPU")
    >>> key = RecordKey(PARTITION, *facts, driver="none", num_threads=4, config="{}")
    >>> Path("built").mkdir()
    >>> shelf = Shelf(Path.cwd)
    >>> shelf.keep(key, Path("built"))
    >>> shelf.find(key).is_dir(), Path("built").exists()
    (True, False)
    >>> shelf.clear()
    """

    def __init__(self, folder: Callable[[], Path], most_bytes: int = _MOST_BYTES) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._kept: dict[RecordKey, tuple[Path, int]] = {}
        self._bytes = self._named = 0

    def keep(self, key: RecordKey, folder: Path) -> None:
        """Take a folder, unless it is too large.

        Parameters
        ----------
        key : RecordKey
            Of the record that was made from it.
        folder : Path
            Is no longer where it was.
        """
        size = sum(path.lstat().st_size for path in folder.rglob("*"))
        self._drop(key)
        if size > self._most_bytes:
            return
        while self._bytes + size > self._most_bytes:
            self._drop(next(iter(self._kept)))
        place = self.place()
        try:
            folder.rename(place)
        except OSError:
            return  # Nothing depends on it: it is built anew.
        self._kept[key] = place, size
        self._bytes += size

    def find(self, key: RecordKey) -> Path | None:
        """Where a folder is; None where it is not kept."""
        found = self._kept.get(key)
        return None if found is None else found[0]

    def size(self, key: RecordKey) -> int:
        """Bytes of a folder that is kept."""
        return self._kept[key][1]

    def place(self) -> Path:
        """The path of another folder, which is not there yet.

        Raises
        ------
        OutputError
            When the folder that it is to be in cannot be made.
        """
        self._named += 1
        shelf = self._folder() / "shelf"
        try:
            shelf.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise OutputError(f"cannot make '{shelf}': {err.strerror}", value=str(shelf)) from err
        return shelf / str(self._named)

    def clear(self) -> None:
        """Delete them all."""
        for key in list(self._kept):
            self._drop(key)

    def _drop(self, key: RecordKey) -> None:
        if key in self._kept:
            path, size = self._kept.pop(key)
            self._bytes -= size
            shutil.rmtree(path, ignore_errors=True)
