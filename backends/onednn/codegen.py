"""From partition functions to a static library: stubs with static data over one runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.onednn.options import OnednnOptions
from collage.backends.onednn.problem import plan_function
from collage.backends.toolchain import compiling
from collage.backends.toolchain.stubs import Stubs

TEMPLATES = Path(__file__).resolve().parent / "templates"

_SOURCES: Mapping[str, Sequence[str]] = {
    # What builds regions runs once, and a compiler takes three times as long to make it fast.
    "runtime.cc": ["-O1"],
    "loops.cc": [],
    "kernels_avx2.cc": [],
    "kernels_avx512.cc": [],
}
"""The runtime's files, the longest first, with their flags: compiled side by side."""


def compile_functions(
    functions: Sequence[relax.Function],
    options: OnednnOptions,
    include: Path,
    context: BuildContext,
) -> tvm.runtime.Module:
    """A library that runs a plan of oneDNN's for each partition of one IRModule.

    Parameters
    ----------
    functions, options, context
        As :meth:`ExternalBackend.codegen` gets them, the options with the target.
    include : Path
        Folder of oneDNN's headers.

    Returns
    -------
    tvm.runtime.Module
        A static library that exports the partitions' symbols.

    Raises
    ------
    CodegenError
        When a function holds something that this backend does not run.
    """
    plans = [plan_function(function, options) for function in functions]
    constants = {symbol: array for plan in plans for symbol, array in plan.constants.items()}
    stubs = Stubs.render(TEMPLATES, [plan.symbol for plan in plans], constants, plans=plans)
    runtime = [compilation.run() for compilation in runtime_compilations(include, context)]
    return stubs.compile(runtime, context)


def runtime_compilations(include: Path, context: BuildContext) -> list[compiling.Compilation]:
    """How the runtime's files are compiled.

    Parameters
    ----------
    include : Path
        Folder that ``oneapi/dnnl/dnnl.hpp`` is included from.
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    list of compiling.Compilation
        Not run yet; independent of each other.
    """
    flags = ["-fopenmp", "-fvisibility=hidden", f"-I{include}", *compiling.ffi_include_flags()]
    depends = [*sorted(TEMPLATES.rglob("*.h")), include / "oneapi" / "dnnl" / "dnnl.hpp"]
    return [
        compiling.cached_compilation(TEMPLATES / name, context, [*flags, *more], depends)
        for name, more in _SOURCES.items()
    ]
