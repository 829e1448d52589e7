"""Where cublasLt is: NVIDIA's wheel, the one beside PyTorch, or a CUDA toolkit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract import LibraryRequirement
from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.toolchain.cuda_toolkit import REMEDY, find_header_dir, find_library
from collage.backends.toolchain.installed_library import header_version

SONAME = "libcublasLt.so.13"
HEADER = "cublasLt.h"
PACKAGE = "nvidia-cublas"


@dataclass(frozen=True)
class Installation:
    """cublasLt on this machine.

    Attributes
    ----------
    include : Path
        Folder of ``cublasLt.h``.
    library : LibraryRequirement
        What a compiled model needs of it.
    """

    include: Path
    library: LibraryRequirement


def find_installation() -> Installation:
    """The cublasLt of this machine.

    Raises
    ------
    BackendUnavailableError
        When its header or its library is not installed.
    """
    library = find_library(SONAME)
    beside = None if library is None else library.parent.parent / "include"
    own = beside is not None and (beside / HEADER).is_file()
    include = beside if own else find_header_dir(HEADER)
    missing = [name for name, found in ((HEADER, include), (SONAME, library)) if found is None]
    if include is None or library is None:
        raise BackendUnavailableError(
            f"{' and '.join(missing)} not found in package {PACKAGE} or a CUDA toolkit",
            remedy=REMEDY,
            value=missing,
        )
    version = header_version(include / "cublas_api.h", "CUBLAS_VER_{}")
    return Installation(include, LibraryRequirement(SONAME, version, PACKAGE, library))
