"""Where oneDNN is: the ``onednn-cpu-gomp`` and ``onednn-devel-cpu-gomp`` distributions.

They run on GNU OpenMP, the pool that every CPU backend shares.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from collage.backends.contract.errors import BackendUnavailableError

LIBRARY = ("onednn-cpu-gomp", "libdnnl.so.3")
HEADER = ("onednn-devel-cpu-gomp", "oneapi/dnnl/dnnl.hpp")
REMEDY = 'pip install "onednn-cpu-gomp>=2023.2,<2024" "onednn-devel-cpu-gomp>=2023.2,<2024"'


@dataclass(frozen=True)
class Installation:
    """oneDNN on this machine.

    Attributes
    ----------
    include : Path
        The folder that ``oneapi/dnnl/dnnl.hpp`` is included from.
    library : Path
        The shared library, by the name that programs look for.
    version : str
        Of the distribution.
    """

    include: Path
    library: Path
    version: str


def find_installation() -> Installation:
    """The oneDNN of this machine.

    Raises
    ------
    BackendUnavailableError
        When its library or its headers are not installed.
    """
    library = _find_file(*LIBRARY)
    header = _find_file(*HEADER)
    return Installation(header.parents[2], library, metadata.version(LIBRARY[0]))


def _find_file(distribution: str, name: str) -> Path:
    """Where an installed distribution put a file whose path ends in ``name``."""
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
    raise BackendUnavailableError(
        f"{name} of {distribution} is not installed", remedy=REMEDY, value=name
    )
