"""Stand-ins for shared libraries to link against: their names, and nothing of what they hold.

A library that we link leaves its undefined names to whoever loads it, so the linker has to know
only whom it needs. Given the library itself it reads that one's names and all libraries that this
one needs in turn: for oneDNN twice as long as it takes for all else, with every candidate.
"""

from __future__ import annotations

from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.toolchain.artifact_cache import make_once
from collage.backends.toolchain.compiling import run_tool
from collage.backends.toolchain.elf.shared_library import shared_library


def import_library(library: Path, context: BuildContext) -> Path:
    """What to link against in a shared library's place.

    Parameters
    ----------
    library : Path
        Shared.
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    Path
        An empty library of the same ``SONAME``, made once; the library itself where it has none, or
        has versions of symbols, which the linker writes down, or is not there, which that says.

    Raises
    ------
    CompileError
        When the linker fails, or the file is no shared library.

    Examples
    --------
    >>> from collage.backends.toolchain.openmp_pool import pool_library
    >>> context = BuildContext(Path("cache"), Path("scratch"))
    >>> stand_in = shared_library(import_library(pool_library(context), context))
    >>> stand_in.soname, len(stand_in.undefined)
    ('libcollage_pool.so.1', 0)
    """
    if not library.exists():
        return library
    found = shared_library(library)
    if not found.soname or found.has_versions:
        return library
    flags = ["-shared", "-nostdlib", f"-Wl,-soname,{found.soname},--build-id=none"]

    def link(path: Path) -> None:
        run_tool([context.cxx, *flags, "-x", "c", "/dev/null", "-o", str(path)])

    return make_once(context.cache_dir / "imports" / found.soname, link)
