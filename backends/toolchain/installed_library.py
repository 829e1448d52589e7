"""Libraries that Python distributions bring: their files, and the versions their headers state."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from collage.backends.contract.errors import BackendUnavailableError


@dataclass(frozen=True)
class InstalledLibrary:
    """A library on this machine that a compiled model is linked against and takes along.

    Attributes
    ----------
    include : Path
        The folder that its headers are included from.
    library : Path
        The shared library, by the name that programs look for.
    version : str
        Of the distribution that brings it.

    Examples
    --------
    >>> openblas = InstalledLibrary(Path("include"), Path("lib/libopenblas.so.0"), "0.3.30")
    >>> openblas.library.name
    'libopenblas.so.0'
    """

    include: Path
    library: Path
    version: str


def find_in_distribution(distribution: str, name: str, remedy: str) -> Path:
    """Where an installed distribution put a file, found without importing it.

    Parameters
    ----------
    distribution : str
        As package registries call it.
    name : str
        The last parts of the file's path, such as ``include/cblas.h``.
    remedy : str
        The command line that installs it.

    Returns
    -------
    Path
        Symbolic links are not followed.

    Raises
    ------
    BackendUnavailableError
        When it, or this part of it, is not installed; its value is the name.

    Examples
    --------
    >>> find_in_distribution("numpy", "linalg/__init__.py", "pip install numpy").name
    '__init__.py'
    >>> find_in_distribution("numpy", "include/cblas.h", "pip install scipy-openblas64")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.BackendUnavailableError: include/cblas.h of numpy is not ...
    """
    try:
        return _place(distribution, name)
    except FileNotFoundError as err:
        raise BackendUnavailableError(
            f"{name} of {distribution} is not installed", remedy=remedy, value=name
        ) from err


@functools.cache
def _place(distribution: str, name: str) -> Path:
    """Looked up once: a large distribution's list of files takes 40 ms to read, several times a
    search. What is missing is looked for again."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.as_posix().endswith("/" + name):
            # Not resolved: the library's link name is the one that programs look for.
            path = Path(os.path.normpath(str(file.locate())))
            if path.is_file():
                return path
    raise FileNotFoundError(name)


def header_version(
    header: Path, macro: str, parts: Sequence[str] = ("MAJOR", "MINOR", "PATCH")
) -> str:
    """The version that a C header states in macros, for example ``4.2.0``; ``?`` for what it lacks.

    Parameters
    ----------
    header : Path
        The file.
    macro : str
        The macros' name, with ``{}`` for the part.
    parts : sequence of str
        The parts of the version, in order.

    Returns
    -------
    str
        Its parts, between full stops.
    """
    text = header.read_text(encoding="utf-8", errors="replace")
    found = [re.search(rf"#define {macro.format(part)}\s+(\d+)", text) for part in parts]
    return ".".join("?" if match is None else match.group(1) for match in found)
