"""Building the guard: what watches over a session at the other end."""

from __future__ import annotations

from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.toolchain.artifact_cache import make_once
from collage.backends.toolchain.compiling import (
    FFI_HEADER,
    cached_compilation,
    ffi_include_flags,
    run_tool,
)

_TEMPLATES = Path(__file__).resolve().parent / "templates"
_SOURCE, _SAMPLES = _TEMPLATES / "guard.c", _TEMPLATES / "gpu_samples.h"


def guard_library(context: BuildContext) -> Path:
    """The guard as a shared library, made by the compiler that makes candidates.

    Parameters
    ----------
    context : BuildContext
        Its compiler must be one for the machines at the other end.

    Raises
    ------
    CompileError
        When it is missing or fails.
    """
    compilation = cached_compilation(_SOURCE, context, ffi_include_flags(), [FFI_HEADER, _SAMPLES])
    compiled = compilation.run()

    def link(path: Path) -> None:
        run_tool([context.cxx, "-shared", "-o", str(path), str(compiled), "-ldl", "-lm"])

    return make_once(compiled.with_suffix(".so"), link)
