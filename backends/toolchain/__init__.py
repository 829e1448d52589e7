"""Tools that backends build with: compilers, what they make, what it needs, and child processes.

A backend's ``codegen`` ends in :func:`static_library`, or in :class:`Stubs` where generated entry
points are data over a runtime compiled once, a :class:`Compilation`. What is made lies in the cache
folder, :func:`make_once` for all processes. :func:`find_in_distribution` and :func:`find_toolkit`
find what wheels bring, :func:`load_libraries` loads what a compiled library needs, and a
:class:`ChildProcess` contains what may crash. Nothing here knows a backend, or an operator.

Backends import the modules: their source digests follow those that they name, and no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand

if TYPE_CHECKING:
    from collage.backends.toolchain.artifact_cache import make_once, replacing
    from collage.backends.toolchain.children import (
        ChildDiedError,
        ChildProcess,
        ChildTimeoutError,
        Line,
        PythonProgram,
    )
    from collage.backends.toolchain.compiling import Compilation, cached_compilation
    from collage.backends.toolchain.cuda_runtime import find_gpu
    from collage.backends.toolchain.cuda_toolkit import compute_capability, find_toolkit
    from collage.backends.toolchain.installed_library import InstalledLibrary, find_in_distribution
    from collage.backends.toolchain.load_requirements import load_libraries, load_runtimes
    from collage.backends.toolchain.native import static_library
    from collage.backends.toolchain.stubs import Stubs

__all__ = [
    "ChildDiedError",
    "ChildProcess",
    "ChildTimeoutError",
    "Compilation",
    "InstalledLibrary",
    "Line",
    "PythonProgram",
    "Stubs",
    "cached_compilation",
    "compute_capability",
    "find_gpu",
    "find_in_distribution",
    "find_toolkit",
    "load_libraries",
    "load_runtimes",
    "make_once",
    "replacing",
    "static_library",
]

# On demand: most of it needs TVM, which who starts a child or keeps a file does not.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "artifact_cache": ("make_once", "replacing"),
        "children": (
            "ChildDiedError",
            "ChildProcess",
            "ChildTimeoutError",
            "Line",
            "PythonProgram",
        ),
        "compiling": ("Compilation", "cached_compilation"),
        "cuda_runtime": ("find_gpu",),
        "cuda_toolkit": ("compute_capability", "find_toolkit"),
        "installed_library": ("InstalledLibrary", "find_in_distribution"),
        "load_requirements": ("load_libraries", "load_runtimes"),
        "native": ("static_library",),
        "stubs": ("Stubs",),
    },
)
