"""What a shared library is called, which names it defines for others, and which it asks of them."""

from __future__ import annotations

import functools
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract.errors import CompileError
from collage.backends.toolchain.elf.sections import (
    DYNAMIC_SYMBOLS_TYPE,
    DYNAMIC_TYPE,
    SYMBOL,
    VERSIONS_TYPE,
    sections_of,
    text_at,
)

_DT_SONAME = 14
_DYNAMIC = struct.Struct("<qQ")


@dataclass(frozen=True)
class SharedLibrary:
    """What stands in a library for the linker.

    Attributes
    ----------
    soname : str
        What who is linked against it asks for; empty where it has no name.
    defined, undefined : mapping of str to int
        Dynamic symbols, without versions, and where in the file each name stands.
    has_versions : bool
        Whether it defines versions of symbols.
    """

    soname: str
    defined: Mapping[str, int]
    undefined: Mapping[str, int]
    has_versions: bool


def shared_library(path: Path) -> SharedLibrary:
    """Read a shared library.

    Parameters
    ----------
    path : Path
        Gone through once in a process, as long as it is not changed.

    Returns
    -------
    SharedLibrary
        Without any name where the file has no table of dynamic symbols.

    Raises
    ------
    CompileError
        When the file is no 64-bit little-endian library.

    Examples
    --------
    >>> from collage.backends.contract import BuildContext
    >>> from collage.backends.toolchain.openmp_pool import pool_library
    >>> pool = shared_library(pool_library(BuildContext(Path("cache"), Path("scratch"))))
    >>> pool.soname, "__wrap_GOMP_parallel" in pool.defined, "pthread_create" in pool.undefined
    ('libcollage_pool.so.1', True, True)
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, ValueError, IndexError, struct.error) as err:
        raise CompileError(
            f"'{path}' is no 64-bit little-endian library: {err}", value=str(path)
        ) from err


@functools.lru_cache(maxsize=64)
def _read(path: Path, _changed: int) -> SharedLibrary:
    # Of a model of gigabytes this reads a few pages.
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        sections = sections_of(content)
        soname = ""
        found: tuple[dict[str, int], dict[str, int]] = {}, {}
        for section in sections:
            names = sections[section.link].offset
            place = range(section.offset, section.offset + section.size, section.entry_size or 1)
            if section.type == DYNAMIC_TYPE:
                entries = (_DYNAMIC.unpack_from(content, at) for at in place)
                soname = next(
                    (text_at(content, names + at) for t, at in entries if t == _DT_SONAME), ""
                )
            elif section.type == DYNAMIC_SYMBOLS_TYPE:
                for at in place:
                    name, _, _, index, *_ = SYMBOL.unpack_from(content, at)
                    if name:
                        found[index == 0][text_at(content, names + name)] = names + name
        has_versions = any(section.type == VERSIONS_TYPE for section in sections)
        return SharedLibrary(soname, *found, has_versions)
