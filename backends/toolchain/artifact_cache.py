"""Files and folders that are made once, whole or not at all, and shared between processes.

An artifact is named by everything that its content depends on, so that one which is there is right.
Locks lie in ``locks``, beside the folder of the artifacts; they stay, because one that is taken
away would be two to those who wait for it. The system frees a lock when its holder ends, however
that happens.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from collage.backends.contract.errors import OutOfTimeError

_PARTIAL = ".part"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside a file or folder, whose content takes its place when the block ends.

    A reader sees all of the old content or all of the new. What was written by a block that fails
    is removed.

    Parameters
    ----------
    path : Path
        What is to be replaced; a folder only where nothing is yet. Its folder is made.

    Yields
    ------
    Path
        Of the same suffix; nothing is there.

    Examples
    --------
    >>> with replacing(Path("notes/today.txt")) as partial:
    ...     size = partial.write_text("whole or not at all")
    >>> [path.name for path in Path("notes").iterdir()]
    ['today.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: the compiler of a process that was killed may still be writing to another.
    partial = path.with_name(f"{path.stem}.{uuid.uuid4().hex}{_PARTIAL}{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        _remove(partial)


def _never() -> bool:
    return False


def make_once(
    path: Path, make: Callable[[Path], object], given_up: Callable[[], bool] = _never
) -> Path:
    """Make a file or folder of a cache, unless it is there.

    Who comes while another thread or process makes it waits for that one, and makes it itself only
    when the other one fails.

    Parameters
    ----------
    path : Path
        ``<cache>/<kind>/<name>``.
    make : callable
        Given the path to write to, in the same folder; see :func:`replacing`.
    given_up : callable, optional
        Asked again and again while another one makes it; after a yes, no longer waited.

    Returns
    -------
    Path
        The same path, which exists.

    Raises
    ------
    OutOfTimeError
        When it was given up.

    Examples
    --------
    >>> def make(path):
    ...     print("makes it")
    ...     path.write_text("made of its name alone")
    >>> for _ in range(2):
    ...     text = make_once(Path("cache/texts/a1b2.txt"), make).read_text()
    makes it
    """
    if not path.exists():
        with made_and_held(path, make, given_up):
            pass
    return path


@contextmanager
def made_and_held(
    path: Path, make: Callable[[Path], object], given_up: Callable[[], bool] = _never
) -> Iterator[Path]:
    """As :func:`make_once`; until the block ends, :func:`evict_oldest` leaves the artifact alone.

    Parameters
    ----------
    path, make, given_up
        As there.

    Yields
    ------
    Path
        The same path, which exists.

    Raises
    ------
    OutOfTimeError
        As there.
    """
    try:
        held = _lock(path).acquire(cancel_check=given_up)
    except Timeout as err:
        raise OutOfTimeError(f"another process still makes '{path}'", value=path) from err
    with held:
        if not path.exists():
            for leftover in path.parent.glob(f"{path.stem}.*{_PARTIAL}{path.suffix}"):
                _remove(leftover)  # Of one that was killed.
            with replacing(path) as partial:
                make(partial)
        os.utime(path)
        yield path


def evict_oldest(folder: Path, limit_bytes: int) -> None:
    """Remove what was used longest ago, until the rest takes no more than the limit.

    Parameters
    ----------
    folder : Path
        Of artifacts that are used by :func:`made_and_held` only.
    limit_bytes : int
        The limit.
    """
    with _lock(folder):
        entries = [entry for entry in folder.iterdir() if _PARTIAL not in entry.suffixes]
        ages = {entry: entry.stat().st_mtime for entry in entries}
        sizes = {entry: size_of(entry) for entry in entries}
        total = sum(sizes.values())
        for entry in sorted(entries, key=ages.__getitem__):
            if total <= limit_bytes:
                break
            with _lock(entry):
                _remove(entry)
            total -= sizes[entry]


def _lock(path: Path) -> FileLock:
    locks = path.parent.parent / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / f"{path.name}.lock")


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder.

    Parameters
    ----------
    path : Path
        It exists.

    Returns
    -------
    int
        Links count as what they lead to.
    """
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
