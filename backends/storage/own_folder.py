"""A folder for as long as a process lives, however that ends."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from collage.backends.contract.errors import OutputError

_LOCK = "alive"


def scratch_parent() -> Path:
    """Where this user's processes of this machine have their scratch folders.

    A folder for temporary files may be shared by several machines, which cannot see each other's
    locks.

    Examples
    --------
    >>> scratch_parent().name
    'collage-...-scratch'
    """
    return Path(tempfile.gettempdir()) / f"collage-{os.getuid()}-{platform.node()}-scratch"


class OwnFolder:
    """A folder of this process's; what others left that were killed is swept first.

    Each has a file that its owner holds locked; the system lets go of it when the owner ends. It
    is removed with the last who refers to it, or when a ``with`` statement ends.

    Parameters
    ----------
    parent : Path
        Where it is made, beside those of others; nothing else may lie there. It goes with the last
        of them.
    prefix : str
        What its name begins with.

    Raises
    ------
    OutputError
        When it cannot be made, or the parent is another user's.

    Examples
    --------
    >>> own = OwnFolder(Path("hosts"))
    >>> own.path.is_dir()
    True
    >>> own.remove()
    >>> Path("hosts").exists()
    False
    """

    def __init__(self, parent: Path, prefix: str = "own-") -> None:
        try:
            with _gate(parent):
                parent.mkdir(mode=0o700, exist_ok=True)
                _check_owner(parent)
                for path in parent.iterdir():
                    if _is_abandoned(path):
                        shutil.rmtree(path, ignore_errors=True)
                self.path = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
                handle = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as err:
            raise OutputError(
                f"cannot make a scratch folder in '{parent}': {err.strerror}", value=str(parent)
            ) from err
        self._finalizer = weakref.finalize(self, _remove, self.path, handle, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Delete it."""
        self._finalizer()


@contextmanager
def _gate(parent: Path) -> Iterator[None]:
    """Nobody may sweep a folder between its making and its locking."""
    parent.parent.mkdir(parents=True, exist_ok=True)
    with (parent.parent / f"{parent.name}.lock").open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield


def _check_owner(parent: Path) -> None:
    found = parent.lstat()
    # Whoever can write there decides what is linked and run.
    if parent.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OutputError(f"others may write to '{parent}'", value=str(parent))


def _is_abandoned(path: Path) -> bool:
    try:
        handle = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _remove(path: Path, handle: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # A copy of the process that made it, which goes on.
    shutil.rmtree(path, ignore_errors=True)
    os.close(handle)
    try:
        with _gate(path.parent):
            path.parent.rmdir()
    except OSError:
        pass  # It is not empty, or gone.
