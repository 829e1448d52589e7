"""Constants in files beside the library, which maps them when it is loaded.

The library has room at each one's symbol that takes nothing in its file, see
``templates/weights.cc``. So what refers to a constant need not know where it lies, and a library
of more than 2 GB of constants, which no linker makes, becomes one of kilobytes.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path

import numpy as np

from collage.backends.contract import BuildContext

FOLDER = "weights"
"""Beside the library."""

LEAST_BYTES = 1 << 16
"""Smaller constants stay in the library: files take whole pages, and one more to look up."""

_PAGE = 4096

_FILE_NAME_BYTES = 48
"""As ``weights.cc`` declares it."""


def is_beside(num_bytes: int, context: BuildContext) -> bool:
    """Whether a constant of the library that is being compiled goes to a file.

    Parameters
    ----------
    num_bytes : int
        Of its data.
    context : BuildContext
        What the library is compiled in.

    Returns
    -------
    bool
        False for all where the context names no folder.
    """
    return context.weights_dir is not None and num_bytes >= LEAST_BYTES


def room_lines(symbol: str, num_bytes: int) -> list[str]:
    """Assembler text of the room for a constant, and of its line in the list of rooms.

    Parameters
    ----------
    symbol : str
        Of the constant.
    num_bytes : int
        Of its data.

    Returns
    -------
    list of str
        In a COMDAT group, so that the final link keeps one however many objects bring it.
    """
    whole = -(-num_bytes // _PAGE) * _PAGE
    name = _place(symbol)
    # Sections of the large code model may lie further than 2 GB from what refers to them.
    section, flags = (".lbss", "awlG") if _has_large_sections() else (".bss", "awG")
    return [
        f'.section {section}.{symbol},"{flags}",@nobits,{symbol},comdat',
        f".weak {symbol}",
        f".hidden {symbol}",
        f".balign {_PAGE}",
        f"{symbol}: .zero {whole}",
        f".size {symbol}, {whole}",
        f'.section collage_weights,"awG",@progbits,{symbol},comdat',
        ".balign 8",
        f".quad {symbol}, {num_bytes}",
        f'.ascii "{name}"',
        f".zero {_FILE_NAME_BYTES - len(name)}",
    ]


def reference_flags() -> list[str]:
    """What the compiler is told of code that refers to constants in files."""
    return ["-mcmodel=medium"] if _has_large_sections() else []


def write_weight(symbol: str, array: np.ndarray, context: BuildContext) -> Path:
    """Write a constant to its file beside the library that is being compiled.

    Libraries of one session share what they have in common on the disk: the variants of a model
    that are compared have the same gigabytes of weights.

    Parameters
    ----------
    symbol : str
        Names it by its content.
    array : ndarray
        Of at least one element.
    context : BuildContext
        Has the folder in ``weights_dir``, and the session's.

    Returns
    -------
    Path
        The file.
    """
    assert context.weights_dir is not None
    place = context.weights_dir / Path(_place(symbol)).name
    shared = context.work_dir / FOLDER / place.name
    for folder in (place.parent, shared.parent):
        folder.mkdir(parents=True, exist_ok=True)
    if not shared.exists():
        # Whole or not at all: several processes compile at a time.
        number, name = tempfile.mkstemp(dir=shared.parent)
        with os.fdopen(number, "wb") as file:
            np.ascontiguousarray(array).tofile(file)
        Path(name).chmod(0o644)
        Path(name).replace(shared)
    if not place.exists():
        link_or_copy(shared, place)
    return place


def link_or_copy(source: Path, place: Path) -> None:
    """Have a file in another place too, without a second copy where the disk is the same.

    Files of weights are never written to once they are there.

    Parameters
    ----------
    source, place : Path
        The file, and where it is to be; whatever lies there is replaced.
    """
    place.unlink(missing_ok=True)
    try:
        os.link(source, place)
    except OSError:
        shutil.copyfile(source, place)


def _place(symbol: str) -> str:
    return f"{FOLDER}/{symbol.rpartition('_')[2]}.bin"


def _has_large_sections() -> bool:
    return platform.machine() == "x86_64"
