"""Whether a bundle is whole: the files that it cannot run without, held against their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from collage.backends.contract.errors import BundleError

_AT_ONCE = 4
"""Files that are hashed at the same time: hashing leaves Python's lock."""


class BundleFile(msgspec.Struct, frozen=True):
    """A file that a bundle cannot run without, as it was written."""

    file: str
    bytes: int
    sha256: str


def file_facts(folder: Path, names: Sequence[str]) -> tuple[BundleFile, ...]:
    """Size and hash of a bundle's files.

    Parameters
    ----------
    folder : Path
        The bundle's.
    names : sequence of str
        Places in it.

    Returns
    -------
    tuple of BundleFile
        In the order of the names; sizes in bytes.

    Raises
    ------
    OSError
        When one cannot be read.

    Examples
    --------
    >>> Path("model.so").write_bytes(b"kernels")
    7
    >>> (facts,) = file_facts(Path(), ["model.so"])
    >>> facts.bytes, facts.sha256[:8]
    (7, '9d5a2d4c')
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(lambda name: _facts(folder, name), names))


def require_whole(folder: Path, files: Sequence[BundleFile], *, hashed: bool = True) -> None:
    """See that every file is there and as it was written.

    Parameters
    ----------
    folder : Path
        The bundle's.
    files : sequence of BundleFile
        As the manifest has them; empty in bundles of earlier releases.
    hashed : bool
        Whether they are read and hashed, or only their sizes looked at.

    Raises
    ------
    BundleError
        Names the first file that is missing, cut off or changed; ``value`` is its place.

    Examples
    --------
    >>> Path("model.so").write_bytes(b"kernels")
    7
    >>> facts = file_facts(Path(), ["model.so"])
    >>> Path("model.so").write_bytes(b"kernel")
    6
    >>> require_whole(Path("."), facts)
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.BundleError: bundle '.': model.so has 6 bytes, not 7: ...
    """
    # Sizes first: a copy that was cut off is found without reading gigabytes.
    for wanted in files:
        path = folder / wanted.file
        if not path.is_file():
            raise BundleError(
                f"bundle '{folder}' lacks {wanted.file}: copy it whole", value=wanted.file
            )
        size = path.stat().st_size
        if size != wanted.bytes:
            raise BundleError(
                f"bundle '{folder}': {wanted.file} has {size} bytes, not {wanted.bytes}: it was "
                "cut off or replaced; copy the bundle whole",
                value=wanted.file,
            )
    if not hashed:
        return
    try:
        found = file_facts(folder, [wanted.file for wanted in files])
    except OSError as err:
        raise BundleError(f"bundle '{folder}' cannot be read: {err}", value=str(folder)) from err
    for wanted, facts in zip(files, found, strict=True):
        if facts.sha256 != wanted.sha256:
            raise BundleError(
                f"bundle '{folder}': {wanted.file} is not what was written (its SHA-256 begins "
                f"with {facts.sha256[:12]}, not {wanted.sha256[:12]}): copy the bundle whole",
                value=wanted.file,
            )


def _facts(folder: Path, name: str) -> BundleFile:
    path = folder / name
    with path.open("rb") as file:
        return BundleFile(
            name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()
        )
