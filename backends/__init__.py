"""Backends, and what every one of them stands on.

Each backend has a folder: ``backend.py`` says what it can do, ``patterns.py`` what it takes,
``partition.py`` and ``problem.py`` read a partition, ``tuning.py`` finds out what runs it best,
``codegen.py`` compiles it. None imports another; they share :mod:`~collage.backends.contract`,
:mod:`~collage.backends.devices`, :mod:`~collage.backends.toolchain`,
:mod:`~collage.backends.relax` and :mod:`~collage.backends.storage`. Beside the folders stand the
two steps that use all of them: :func:`compile_module` makes one library of a partitioned module,
linked and described by a :class:`CompiledLibrary`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand

if TYPE_CHECKING:
    from collage.backends.compile import compile_module
    from collage.backends.link import CompiledLibrary, library_requirements, stage_libraries

__all__ = ["CompiledLibrary", "compile_module", "library_requirements", "stage_libraries"]

# On demand: both modules need TVM, and import the packages below this one.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "compile": ("compile_module",),
        "link": ("CompiledLibrary", "library_requirements", "stage_libraries"),
    },
)
