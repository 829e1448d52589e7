"""NVIDIA's CUTLASS: where its headers are, and which version they have."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.toolchain.cuda_toolkit import REMEDY

PACKAGE = "nvidia-cutlass"
TEMPLATES = Path(__file__).resolve().parent / "templates"


@functools.cache
def find_cutlass() -> Path | None:
    """The folder that holds CUTLASS's ``include`` and ``tools``, found without importing it."""
    spec = importlib.util.find_spec("cutlass_library")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "source"
    return folder if (folder / "include" / "cutlass" / "version.h").is_file() else None


def cutlass_folder() -> Path:
    """As :func:`find_cutlass`.

    Raises
    ------
    BackendUnavailableError
        When CUTLASS is not installed.
    """
    folder = find_cutlass()
    if folder is None:
        raise BackendUnavailableError(
            f"the headers of {PACKAGE} were not found", remedy=REMEDY, value=PACKAGE
        )
    return folder


@functools.cache
def cutlass_version() -> str:
    """For example ``4.2.0``.

    Raises
    ------
    BackendUnavailableError
        When CUTLASS is not installed.
    """
    text = (cutlass_folder() / "include" / "cutlass" / "version.h").read_text(encoding="utf-8")
    numbers = [
        re.search(rf"#define CUTLASS_{part} (\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")
    ]
    return ".".join(match.group(1) if match else "?" for match in numbers)


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
