"""What is in a zip archive, as many formats of models are one."""

from __future__ import annotations

import zipfile
from pathlib import Path

from collage.backends.contract.errors import ModelError


def names_in(path: Path) -> set[str]:
    """The files in a zip archive, without their folders; none where it is no archive.

    Raises
    ------
    ModelError
        For an archive that is damaged.

    Examples
    --------
    >>> with zipfile.ZipFile("net.zip", "w") as archive:
    ...     archive.writestr("net/data.pkl", "")
    >>> names_in(Path("net.zip"))
    {'data.pkl'}
    """
    if not zipfile.is_zipfile(path):
        return set()
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.rsplit("/", 1)[-1] for name in archive.namelist()}
    except zipfile.BadZipFile as err:
        raise ModelError(
            f"'{path}' is a damaged zip archive ({err}); save or fetch it again", value=str(path)
        ) from err
