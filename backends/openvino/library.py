"""Where OpenVINO is: headers, the library of its C API, and what that loads by itself."""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.contract.requirements import install_extra
from collage.backends.toolchain.installed_library import InstalledLibrary, find_in_distribution

PACKAGE = "openvino"
REMEDY = install_extra("openvino")

_COMPANIONS = (
    # What the library of the C API needs, and those need.
    "libopenvino.so.*",
    "libtbb.so.*",
    # Loaded when the first model is read, and when it is compiled.
    "libopenvino_ir_frontend.so.*",
    "libopenvino_*_cpu_plugin.so",
)
_OPTIONAL_COMPANIONS = ("libtbbbind*.so.*", "libhwloc.so.*")
"""By which TBB tells the kinds of cores that some processors have."""


@dataclass(frozen=True)
class OpenvinoInstallation(InstalledLibrary):
    """The OpenVINO of this machine; ``library`` is that of its C API.

    Attributes
    ----------
    companions : tuple of Path
        Libraries beside it that it loads by their names.
    """

    companions: tuple[Path, ...]


def find_installation() -> OpenvinoInstallation:
    """The OpenVINO of this machine; ``openvino/c/openvino.h`` lies below its ``include``.

    Raises
    ------
    BackendUnavailableError
        When it, or one of its parts, is not installed.
    """
    header = find_in_distribution(PACKAGE, "include/openvino/c/openvino.h", REMEDY)
    folder = header.parents[3] / "libs"
    (library,) = _matching(folder, "libopenvino_c.so.*")
    companions = [path for pattern in _COMPANIONS for path in _matching(folder, pattern)]
    companions += [path for pattern in _OPTIONAL_COMPANIONS for path in folder.glob(pattern)]
    version = metadata.version(PACKAGE)
    return OpenvinoInstallation(header.parents[2], library, version, tuple(sorted(companions)))


def _matching(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise BackendUnavailableError(
            f"{len(found)} files are called {pattern} in '{folder}', not one",
            remedy=REMEDY,
            value=pattern,
        )
    return found


def python_api() -> Any:
    """The package ``openvino``, a third of a second where it was not imported before.

    Its conversion tool, which it imports last and can do without, reports every import to its maker
    from a process that it forks: with threads about, that process may hang, and the caller with it.
    """
    if "openvino" in sys.modules:
        return sys.modules["openvino"]
    # Of what is None there, Python says that it cannot be imported.
    tool = "openvino.tools.ovc"
    kept = sys.modules.setdefault(tool, None)  # type: ignore[arg-type]
    try:
        return importlib.import_module("openvino")
    finally:
        if kept is None:
            del sys.modules[tool]


@functools.cache
def cpu_capabilities() -> frozenset[str]:
    """What this machine's processor computes with by itself, as the CPU plugin says."""
    core = python_api().Core()
    return frozenset(map(str, core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")))
