"""Where oneDNN is: the ``onednn-cpu-gomp`` and ``onednn-devel-cpu-gomp`` distributions.

They run on GNU OpenMP, the pool that every CPU backend shares.
"""

from __future__ import annotations

from importlib import metadata

from collage.backends.toolchain.installed_library import InstalledLibrary, find_in_distribution

PACKAGE = "onednn-cpu-gomp"
HEADERS_PACKAGE = "onednn-devel-cpu-gomp"
REMEDY = f'pip install "{PACKAGE}>=2023.2,<2024" "{HEADERS_PACKAGE}>=2023.2,<2024"'


def find_installation() -> InstalledLibrary:
    """The oneDNN of this machine; ``oneapi/dnnl/dnnl.hpp`` lies below its ``include``.

    Raises
    ------
    BackendUnavailableError
        When its library or its headers are not installed.
    """
    library = find_in_distribution(PACKAGE, "libdnnl.so.3", REMEDY)
    header = find_in_distribution(HEADERS_PACKAGE, "oneapi/dnnl/dnnl.hpp", REMEDY)
    return InstalledLibrary(header.parents[2], library, metadata.version(PACKAGE))
