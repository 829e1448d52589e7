"""Load what a compiled library needs and does not bring along, before it is loaded itself.

Libraries of NVIDIA's are too large to copy and lie in wheels that the linker knows nothing of.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from pathlib import Path

from collage.backends.contract.abilities import NeedsRuntime
from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.contract.registry import get_backend
from collage.backends.contract.requirements import LibraryRequirement, RequiredLibrary
from collage.backends.toolchain.cuda_toolkit import find_library


def load_libraries(libraries: Iterable[RequiredLibrary], beside: Path | None = None) -> None:
    """Load libraries so that those linked against them find them by their names.

    One whose path is known is loaded from there, another one from where it is found here.

    Parameters
    ----------
    libraries : iterable of RequiredLibrary
        In the order in which they are loaded.
    beside : Path, optional
        A folder that is looked into first.

    Raises
    ------
    BackendUnavailableError
        When one cannot be loaded; its value is the library's name.

    Examples
    --------
    >>> load_libraries([RequiredLibrary("libm.so.6", "2.36", "libc6")])
    >>> load_libraries([RequiredLibrary("libfast.so.1", "1.2", "fast")])
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.BackendUnavailableError: libfast.so.1 (it was linked with ...
    """
    for library in libraries:
        try:
            ctypes.CDLL(str(_path(library, beside)), ctypes.RTLD_GLOBAL)
        except OSError as err:
            # NVIDIA counts versions up with a library's name: the newest package may not fit.
            major = library.version.partition(".")[0]
            raise BackendUnavailableError(
                f"{library.soname} (it was linked with version {library.version}): {err}",
                remedy=f"pip install '{library.package}=={major}.*'",
                value=library.soname,
            ) from err


def load_runtimes(runtimes: Mapping[str, str]) -> None:
    """Make ready what else runs partitions.

    Parameters
    ----------
    runtimes : mapping of str to str
        By backend, what :meth:`NeedsRuntime.runtime` named.

    Raises
    ------
    BackendUnavailableError
        When a runtime is not installed here; its value is the runtime's name.

    Examples
    --------
    >>> load_runtimes({"onednn": "an engine"})
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.BackendUnavailableError: backend 'onednn' has no 'an engine'
    """
    for name, runtime in runtimes.items():
        backend = get_backend(name)
        if not isinstance(backend, NeedsRuntime):
            raise BackendUnavailableError(f"backend '{name}' has no '{runtime}'", value=runtime)
        try:
            backend.load_runtime(runtime)
        except BackendUnavailableError as err:
            raise BackendUnavailableError(str(err), value=runtime) from err


def _path(library: RequiredLibrary, beside: Path | None) -> Path:
    if beside is not None and (beside / library.soname).is_file():
        return beside / library.soname
    if isinstance(library, LibraryRequirement):
        return library.path
    return find_library(library.soname) or Path(library.soname)
