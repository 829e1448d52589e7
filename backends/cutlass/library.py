"""NVIDIA's CUTLASS: where its headers are, and which version they have."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.toolchain.cuda_toolkit import REMEDY
from collage.backends.toolchain.installed_library import header_version

PACKAGE = "nvidia-cutlass"
TEMPLATES = Path(__file__).resolve().parent / "templates"


@functools.cache
def cutlass_folder() -> Path:
    """The folder that holds CUTLASS's ``include`` and ``tools``, found without importing it.

    Raises
    ------
    BackendUnavailableError
        When CUTLASS is not installed.
    """
    spec = importlib.util.find_spec("cutlass_library")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "source"
        if _version_header(folder).is_file():
            return folder
    raise BackendUnavailableError(
        f"the headers of {PACKAGE} were not found", remedy=REMEDY, value=PACKAGE
    )


def _version_header(folder: Path) -> Path:
    return folder / "include" / "cutlass" / "version.h"


@functools.cache
def cutlass_version() -> str:
    """For example ``4.2.0``.

    Raises
    ------
    BackendUnavailableError
        When CUTLASS is not installed.
    """
    return header_version(_version_header(cutlass_folder()), "CUTLASS_{}")


def include_flags() -> list[str]:
    """``-I`` flags for CUTLASS's headers, and its version, which makes objects of its own."""
    folder = cutlass_folder()
    return [
        f"-I{folder / 'include'}",
        f"-I{folder / 'tools' / 'util' / 'include'}",
        f'-DCOLLAGE_CUTLASS_VERSION="{cutlass_version()}"',
    ]


def template_headers() -> list[Path]:
    """Headers whose content counts in every compiled file.

    The others count in the units that include them, see ``unit.py``.
    """
    return [TEMPLATES / "collage_cutlass.h"]
