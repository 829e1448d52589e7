"""Libraries that are compiled to be measured: what they need is kept beside them.

Libraries of NVIDIA's are too large to copy and lie in wheels that the linker knows nothing of: who
loads a compiled library loads those first. A bundle has the same in its manifest; this is for
libraries that are only measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import tvm
from msgspec.structs import replace

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext, LibraryRequirement
from collage.backends.contract.errors import BackendUnavailableError, MeasurementError
from collage.backends.link import CompiledLibrary, stage_libraries
from collage.backends.toolchain.load_requirements import load_libraries, load_runtimes
from collage.cost.processes.protocol import Message, decode, encode

_NAME = "requirements.json"


class _Requirements(Message, frozen=True):
    """What :class:`CompiledLibrary` says of the machine."""

    libraries: tuple[LibraryRequirement, ...]
    runtimes: dict[str, str]


def stage_to_measure(library: CompiledLibrary) -> None:
    """Put what a library needs beside it: links to what it brings along, names of the rest."""
    stage_libraries(library, copy=False)
    place = library.path.with_name(_NAME)
    if library.required or library.runtimes:
        place.write_bytes(encode(_Requirements(library.required, dict(library.runtimes))))
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

    Returns
    -------
    CompiledLibrary
        Its ``path`` is ``output``.

    Raises
    ------
    CodegenError, CompileError
        As a backend or the compiler raised them.
    """
    library = compile_module(module, targets, output, context, cuda_graph=True)
    stage_to_measure(library)
    return library


def move_requirements(folder: Path, old: Path, new: Path) -> None:
    """Have what :func:`stage_to_measure` named looked for in another place.

    Parameters
    ----------
    folder : Path
        Of the library, whose files came from elsewhere.
    old, new : Path
        What packages are installed in there, and here.

    Raises
    ------
    ProtocolError
        When what was left there cannot be read.
    """
    place = folder / _NAME
    if not place.exists() or old == new:
        return
    named: _Requirements = decode(place.read_bytes(), _Requirements)
    moved = tuple(
        replace(library, path=new / library.path.relative_to(old))
        if library.path.is_relative_to(old)
        else library
        for library in named.libraries
    )
    place.write_bytes(encode(_Requirements(moved, named.runtimes)))


def requirements_of(library: Path) -> tuple[Sequence[LibraryRequirement], Mapping[str, str]]:
    """What :func:`stage_to_measure` left beside a library: libraries, and runtimes by backend.

    Raises
    ------
    ProtocolError
        When it cannot be read.
    """
    place = library.with_name(_NAME)
    if not place.exists():
        return (), {}
    requirements: _Requirements = decode(place.read_bytes(), _Requirements)
    return requirements.libraries, requirements.runtimes


def load_requirements(library: Path) -> None:
    """Load what :func:`stage_to_measure` left beside a library.

    Raises
    ------
    MeasurementError
        When one of them cannot be loaded; names it.
    BackendUnavailableError
        When a backend's runtime is not installed.
    ProtocolError
        When what was left there cannot be read.
    """
    libraries, runtimes = requirements_of(library)
    try:
        load_libraries(libraries)
    except BackendUnavailableError as err:
        raise MeasurementError(f"the library needs {err}", value=err.value) from err
    load_runtimes(runtimes)
