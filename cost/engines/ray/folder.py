"""A folder for as long as a process lives, however that ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LOCK = "alive"


class OwnFolder:
    """A folder of this process's; what others left that were killed is swept first.

    Each has a file that its owner holds locked; the system lets go of it when the owner ends.

    Parameters
    ----------
    parent : Path
        Where it is made, beside those of others.

    Examples
    --------
    >>> own = OwnFolder(Path("hosts"))
    >>> own.path.is_dir()
    True
    >>> own.remove()
    >>> list(Path("hosts").iterdir())
    []
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        # Nobody may sweep a folder between its making and its locking.
        with (parent.parent / f"{parent.name}.lock").open("a") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            for path in parent.iterdir():
                if _is_abandoned(path):
                    shutil.rmtree(path, ignore_errors=True)
            self.path = Path(tempfile.mkdtemp(dir=parent, prefix="host-"))
            self._handle = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self._handle, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Delete it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def _is_abandoned(path: Path) -> bool:
    try:
        handle = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
