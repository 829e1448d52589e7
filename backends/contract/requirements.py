"""What a backend needs of a machine: to be used at all, and to load what it compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from collage.backends.contract.errors import BackendUnavailableError

_DISTRIBUTION = "collage-tvm"
"""This project's name where it is installed from; ``collage`` belongs to another one."""


def install_extra(extra: str) -> str:
    """The command line that installs what an extra of this project names."""
    return f"pip install '{_DISTRIBUTION}[{extra}]'"


@dataclass(frozen=True)
class Availability:
    """Whether a backend can be used on this machine.

    ``versions`` maps each library to its version; they are part of every measurement's key.
    ``remedy`` is a command line that mends an absence, for example ``pip install ...``.

    Examples
    --------
    >>> Availability(True, {"libfast": "1.2"}).usable
    True
    >>> from collage.backends.contract.errors import BackendUnavailableError
    >>> def versions():
    ...     raise BackendUnavailableError("libfast is not here", remedy="pip install libfast")
    >>> Availability.of(versions).remedy
    'pip install libfast'
    """

    usable: bool
    versions: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, versions: Callable[[], Mapping[str, str]]) -> Availability:
        """The answer of a probe that looks for libraries.

        Parameters
        ----------
        versions : callable
            Finds them and returns their versions, or raises
            :class:`~collage.backends.contract.errors.BackendUnavailableError`.
        """
        try:
            return cls(True, versions=versions())
        except BackendUnavailableError as err:
            return cls(False, reason=err.reason, remedy=err.remedy)


class RequiredLibrary(msgspec.Struct, frozen=True):
    """A shared library that a compiled model needs and does not bring along, on any machine.

    Attributes
    ----------
    soname : str
        The name it is loaded by, for example ``libcublasLt.so.13``.
    version : str
        What was linked against.
    package : str
        The Python package that brings it.
    """

    soname: str
    version: str
    package: str


class LibraryRequirement(RequiredLibrary, frozen=True):
    """A required library on the machine that compiles.

    Attributes
    ----------
    path : Path
        Where it lies there.
    companions : tuple of Path
        What it loads by itself as it runs, besides what it is linked with.

    Examples
    --------
    >>> from pathlib import Path
    >>> place = Path("/usr/lib/libfast.so.1")
    >>> LibraryRequirement("libfast.so.1", "1.2", "fast", place).soname
    'libfast.so.1'
    """

    path: Path
    companions: tuple[Path, ...] = ()
