"""What a library needs before it can be loaded, kept beside it for the process that loads it.

Libraries of NVIDIA's are too large to copy and lie in wheels that the linker knows nothing of: who
loads a compiled library loads those first. A bundle has the same in its manifest; this is for
libraries that are only measured.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path

import tvm

from collage.backends.compile import CompiledLibrary, compile_module, stage_libraries
from collage.backends.contract import BackendTarget, BuildContext, NeedsRuntime
from collage.backends.contract.errors import MeasurementError
from collage.backends.contract.registry import get_backend

_NAME = "needs.json"


def stage_to_measure(library: CompiledLibrary) -> None:
    """Put what a library needs beside it: links to what it brings along, names of the rest."""
    stage_libraries(library, copy=False)
    needs = {
        "libraries": [str(need.path) for need in library.required],
        "runtimes": dict(library.runtimes),
    }
    place = library.path.with_name(_NAME)
    if any(needs.values()):
        place.write_text(json.dumps(needs), encoding="utf-8")
    else:
        place.unlink(missing_ok=True)


def compile_to_measure(
    module: tvm.IRModule, targets: Sequence[BackendTarget], output: Path, context: BuildContext
) -> CompiledLibrary:
    """A whole model's library with what it needs beside it.

    Parameters
    ----------
    module : tvm.IRModule
        Partitioned.
    targets : sequence of BackendTarget
        At least every backend that the module uses.
    output : Path
        The library to write.
    context : BuildContext
        Where and how to build.

    Raises
    ------
    CodegenError, CompileError
        As a backend or the compiler raised them.
    """
    library = compile_module(module, targets, output, context, cuda_graph=True)
    stage_to_measure(library)
    return library


def load_needs(library: Path) -> None:
    """Load what :func:`stage_to_measure` left beside a library.

    Raises
    ------
    MeasurementError
        When one of them cannot be loaded; names it.
    BackendUnavailableError
        When a backend's runtime is not installed.
    """
    place = library.with_name(_NAME)
    if not place.exists():
        return
    needs = json.loads(place.read_text(encoding="utf-8"))
    for path in needs["libraries"]:
        try:
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        except OSError as err:
            raise MeasurementError(f"'{path}' cannot be loaded: {err}", value=path) from err
    for name, runtime in needs["runtimes"].items():
        backend = get_backend(name)
        if isinstance(backend, NeedsRuntime):
            backend.load_runtime(runtime)
