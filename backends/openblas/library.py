"""Where OpenBLAS is: the ``scipy-openblas32`` wheel, whose symbols start with ``scipy_``."""

from __future__ import annotations

from importlib import metadata

from collage.backends.toolchain.installed_library import InstalledLibrary, find_in_distribution

PACKAGE = "scipy-openblas32"
REMEDY = f'pip install "{PACKAGE}>=0.3.27,<0.4"'


def find_installation() -> InstalledLibrary:
    """The OpenBLAS of this machine; its library needs nothing but libc and libm.

    Raises
    ------
    BackendUnavailableError
        When it, or a part of it, is not installed.
    """
    library = find_in_distribution(PACKAGE, "lib/libscipy_openblas.so", REMEDY)
    header = find_in_distribution(PACKAGE, "include/cblas.h", REMEDY)
    return InstalledLibrary(header.parent, library, metadata.version(PACKAGE))
