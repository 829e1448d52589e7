"""The pool of threads that kernels of a processor share: our own, in libgomp's place.

What it is for and how it works is said in ``templates/openmp_pool.c``. Calls in objects are led to
it by the linker. A library that calls libgomp itself is copied, and the names that it asks for get
the pool's first letter: who answers would otherwise depend on what else the process has loaded
(``import torch`` puts libgomp before all others). What of libgomp depends on a region's threads has
to be all ours or all libgomp's, so whatever uses more of it than we have is left to libgomp.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.toolchain.artifact_cache import make_once
from collage.backends.toolchain.compiling import TEMPLATES, cached_compilation, run_tool
from collage.backends.toolchain.elf.shared_library import shared_library

SONAME = "libcollage_pool.so.1"
"""The first that a process loads serves all; to be raised when what it exports changes."""

_SOURCE = TEMPLATES / "openmp_pool.c"
_INCLUDED = (TEMPLATES / "openmp_waiting.h", TEMPLATES / "denormal_flags.h")
_WRAPS = "__wrap_"
_OPENMP = ("GOMP_", "omp_")
_OWN_LETTER = {"G": ord("C"), "o": ord("c")}
_FREE = ("GOMP_critical", "GOMP_atomic", "omp_get_wti")
"""How functions begin that know nothing of regions: libgomp's serve as well."""


def pool_library(context: BuildContext) -> Path | None:
    """The shared library of the pool, compiled once; None where it does not work.

    Threads wait in the Linux kernel's way (futex).

    Parameters
    ----------
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    Path or None
        Named :data:`SONAME`.

    Raises
    ------
    CompileError
        When the compiler is missing or fails.
    """
    if not sys.platform.startswith("linux"):
        return None
    compiled = cached_compilation(_SOURCE, context, ["-pthread", "-fvisibility=hidden"], _INCLUDED)
    folder = context.cache_dir / "pools" / compiled.output.stem
    # Helpers run its code for as long as their threads live: it is never unloaded.
    flags = ["-shared", "-pthread", f"-Wl,-soname,{SONAME},-z,nodelete,--build-id=none"]

    def link(path: Path) -> None:
        run_tool([context.cxx, *flags, "-o", str(path), str(compiled.run())])

    return make_once(folder / SONAME, link)


def wrapping(pool: Path) -> list[str]:
    """The linker's flags by which objects call the pool."""
    return [f"-Wl,--wrap={name}" for name in sorted(_functions(pool))]


def uses_more(library: Path, pool: Path) -> str:
    """A function of libgomp that a library calls, depends on regions and is not the pool's.

    Parameters
    ----------
    library : Path
        Shared.
    pool : Path
        As :func:`pool_library` gave it.

    Returns
    -------
    str
        The function's name; empty where the pool has them all.

    Raises
    ------
    CompileError
        When a file is no shared library.
    """
    called = shared_library(library).undefined.keys() - _functions(pool)
    return next(
        (n for n in sorted(called) if n.startswith(_OPENMP) and not n.startswith(_FREE)), ""
    )


def on_pool(library: Path, pool: Path, context: BuildContext) -> Path:
    """A library whose calls of libgomp are the pool's: a copy, made once, or itself.

    Parameters
    ----------
    library, pool
        As :func:`uses_more` takes them.
    context : BuildContext
        Has the cache folder.

    Returns
    -------
    Path
        Of the same name; the library itself where it calls nothing of the pool's, or more. A copy
        without changes where not all of the names can be changed: half of them would be wrong.

    Raises
    ------
    CompileError
        As :func:`uses_more`.
    """
    asked_for = shared_library(library).undefined
    names = asked_for.keys() & _functions(pool)
    if not names or uses_more(library, pool):
        return library
    stat = library.stat()
    key = f"{library.resolve()}\0{stat.st_mtime_ns}\0{stat.st_size}\0{sorted(names)}"
    folder = context.cache_dir / "pools" / hashlib.sha256(key.encode()).hexdigest()[:20]

    def copy(path: Path) -> None:
        content = bytearray(library.read_bytes())
        # The end of a longer name is no place of its own.
        if all(content[asked_for[name] - 1] == 0 for name in names):
            for name in names:
                content[asked_for[name]] = _OWN_LETTER[name[0]]
        path.write_bytes(content)
        path.chmod(0o755)

    return make_once(folder / library.name, copy)


def _functions(pool: Path) -> frozenset[str]:
    """What the pool stands in for, by libgomp's names."""
    defined = shared_library(pool).defined
    return frozenset(n.removeprefix(_WRAPS) for n in defined if n.startswith(_WRAPS))
