"""Where onnxruntime is: the shared library with its C API, and the package in Python."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from collage.backends.contract.errors import BackendUnavailableError

PACKAGE = "onnxruntime"
_LEAST = (1, 20)
"""Before that, ``SimplifiedLayerNormalization`` and multi-head attention had no such kernels, and
the library did not come with the package."""

REMEDY = f"pip install 'onnxruntime>={_LEAST[0]}.{_LEAST[1]}'"


@dataclass(frozen=True)
class OnnxruntimeInstallation:
    """The onnxruntime of this machine.

    Attributes
    ----------
    library : Path
        The shared library that exports ``OrtGetApiBase``; it loads no other.
    version : str
        Of the distribution that brings it.

    Examples
    --------
    >>> OnnxruntimeInstallation(Path("libonnxruntime.so.1.23.0"), "1.23.0").library.name
    'libonnxruntime.so.1.23.0'
    """

    library: Path
    version: str


def find_installation() -> OnnxruntimeInstallation:
    """The onnxruntime of this machine, found without importing it.

    Raises
    ------
    BackendUnavailableError
        When it is not installed, is too old, or has no library beside its Python module.
    """
    try:
        distribution = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError as err:
        raise BackendUnavailableError(
            f"{PACKAGE} is not installed", remedy=REMEDY, value=PACKAGE
        ) from err
    version = distribution.version
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < _LEAST:
        raise BackendUnavailableError(
            f"{PACKAGE} {version} is too old", remedy=REMEDY, value=version
        )
    folder = Path(str(distribution.locate_file(f"{PACKAGE}/capi")))
    found = sorted(folder.glob("libonnxruntime.so.*"))
    if len(found) != 1:
        raise BackendUnavailableError(
            f"{len(found)} files are called libonnxruntime.so.* in '{folder}', not one",
            remedy=REMEDY,
            value=str(folder),
        )
    return OnnxruntimeInstallation(found[0], version)


def python_api() -> Any:
    """The package ``onnxruntime``."""
    return importlib.import_module(PACKAGE)
