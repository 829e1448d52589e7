"""Where OpenBLAS is: the ``scipy-openblas32`` wheel, whose symbols start with ``scipy_``."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from collage.backends.contract.errors import BackendUnavailableError

PACKAGE = "scipy-openblas32"
REMEDY = 'pip install "scipy-openblas32>=0.3.27,<0.4"'


@dataclass(frozen=True)
class Installation:
    """OpenBLAS on this machine.

    Attributes
    ----------
    include : Path
        Folder of ``cblas.h``.
    library : Path
        The shared library; it needs nothing but libc and libm.
    version : str
    """

    include: Path
    library: Path
    version: str


def find_installation() -> Installation:
    """The OpenBLAS of this machine, found without importing the wheel.

    Raises
    ------
    BackendUnavailableError
        When it, or a part of it, is not installed.
    """
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is None or spec.origin is None:
        raise BackendUnavailableError(f"{PACKAGE} is not installed", remedy=REMEDY, value=PACKAGE)
    folder = Path(spec.origin).parent
    library, header = folder / "lib" / "libscipy_openblas.so", folder / "include" / "cblas.h"
    missing = [path.name for path in (library, header) if not path.is_file()]
    if missing:
        raise BackendUnavailableError(
            f"{PACKAGE} at '{folder}' lacks {', '.join(missing)}",
            remedy=f"{REMEDY} --force-reinstall",
            value=missing,
        )
    return Installation(header.parent, library, metadata.version(PACKAGE))
