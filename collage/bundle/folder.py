"""The folder of a bundle: made ready before a search, and filled with all of a bundle or none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collage.backends.contract.errors import OutputError
from collage.backends.toolchain.weight_files import FOLDER
from collage.bundle.manifest import MANIFEST

LIB, RUNTIME, WEIGHTS, STATE = "lib", "runtime", FOLDER, "state"
"""Where shared libraries lie in a bundle, TVM's runtime in one that brings it, weights that are
not inside of the model's library, and what it keeps before its first call."""

_PARTIAL = ".partial"
"""Where a bundle is written, inside its folder: what lies beside that may be another disk."""


def prepare_folder(folder: Path) -> None:
    """Make a bundle's folder, before any work is spent on its content.

    Raises
    ------
    OutputError
        When it cannot be made or written, or holds something that is no bundle.

    Examples
    --------
    >>> prepare_folder(Path("net.bundle"))
    >>> Path("notes").mkdir()
    >>> Path("notes/today.txt").touch()
    >>> prepare_folder(Path("notes"))
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.OutputError: 'notes' holds files but is no bundle; ...
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".write-probe"
        probe.touch()
        probe.unlink()
    except OSError as err:
        raise OutputError(
            f"cannot write to '{folder}': {err.strerror}; choose another folder", value=str(folder)
        ) from err
    others = [path for path in folder.iterdir() if path.name != _PARTIAL]
    if others and not (folder / MANIFEST).exists():
        raise OutputError(
            f"'{folder}' holds files but is no bundle; choose an empty or new folder",
            value=str(folder),
        )


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """A place for a bundle's files, which become the folder's when the block ends.

    What a block that fails has written is removed: the folder is as it was, and can be written to
    again. Files are replaced, not overwritten: a running program may have the old ones mapped.

    Yields
    ------
    Path
        An empty folder.

    Raises
    ------
    OutputError
        When it cannot be made, or what was written cannot be moved.

    Examples
    --------
    >>> folder = Path("net.bundle")
    >>> with filling(folder) as place:
    ...     size = (place / MANIFEST).write_text("{}")
    >>> [path.name for path in folder.iterdir()]
    ['manifest.json']
    """
    prepare_folder(folder)
    partial = folder / _PARTIAL
    try:
        _renewed(partial)
        yield partial
        _moved(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def spelled_by_file(path: Path) -> str:
    """A library's path, written otherwise wherever another file lies there.

    Libraries are loaded by the text of their paths: what a program had from a folder it would have
    again after another bundle was exported there. A file that is loaded keeps its number.

    Examples
    --------
    >>> path = Path("model.so").absolute()
    >>> path.touch()
    >>> spelled_by_file(path) == str(path), Path(spelled_by_file(path)) == path
    (False, True)
    """
    number = f"{path.stat().st_ino:b}"
    return f"{path.parent}{number.replace('0', '/').replace('1', '/.')}/{path.name}"


def _renewed(partial: Path) -> None:
    try:
        # A process that was killed may have left one.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    except OSError as err:
        raise OutputError(f"cannot write '{partial}': {err.strerror}", value=str(partial)) from err


def _moved(partial: Path, folder: Path) -> None:
    try:
        for name in (LIB, RUNTIME, WEIGHTS):
            shutil.rmtree(folder / name, ignore_errors=True)
        # The manifest first: what is cut off here is a bundle that lacks files, and says so.
        for path in sorted(partial.iterdir(), key=lambda path: path.name != MANIFEST):
            path.replace(folder / path.name)
    except OSError as err:
        raise OutputError(f"cannot write to '{folder}': {err.strerror}", value=str(folder)) from err
