"""From an executable in memory to a shared library, and what that needs beside it or installed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tvm import relax

from collage.backends.contract import (
    BackendTarget,
    BuildContext,
    BundlesLibraries,
    LibraryRequirement,
    NeedsRuntime,
    RequiresLibraries,
    ShipsLibraries,
    members_of,
)
from collage.backends.contract.errors import CompileError, OutputError, TargetError
from collage.backends.devices import common_device
from collage.backends.toolchain import native


@dataclass(frozen=True)
class CompiledLibrary:
    """A linked library and what it needs.

    Attributes
    ----------
    path : Path
        The shared library, loadable with ``tvm.runtime.load_module``.
    shared_libraries : tuple of Path
        Libraries it needs, and those that these load; copied to ``lib/`` beside it when a bundle is
        made.
    required : tuple of LibraryRequirement
        Libraries it needs that the machine must have.
    runtimes : mapping of str to str
        By backend, what else runs its partitions.

    Examples
    --------
    >>> blas = Path("/usr/lib/libopenblas.so.0")
    >>> library = CompiledLibrary(Path("model.so"), shared_libraries=(blas,))
    >>> library.path.name, library.required
    ('model.so', ())
    """

    path: Path
    shared_libraries: tuple[Path, ...]
    required: tuple[LibraryRequirement, ...] = ()
    runtimes: Mapping[str, str] = field(default_factory=dict)


def library_requirements(targets: Sequence[BackendTarget]) -> tuple[LibraryRequirement, ...]:
    """Libraries that the machine must have to run what these targets compile.

    Raises
    ------
    TargetError
        When two targets need different libraries of the same name, which one process cannot load.

    Examples
    --------
    >>> from tvm.target import Target
    >>> library_requirements([BackendTarget.of("onednn", Target("llvm"))])
    ()
    """
    required = [*common_device(targets).required_libraries()]
    for backend, target in members_of(RequiresLibraries, targets):
        required += backend.required_libraries(target)
    distinct: dict[str, LibraryRequirement] = {}
    for library in required:
        stem = library.soname.partition(".so")[0]
        other = distinct.setdefault(stem, library)
        if (other.soname, other.path) != (library.soname, library.path):
            raise TargetError(
                f"two targets need different libraries '{stem}': {other.soname} of "
                f"{other.package} {other.version} and {library.soname} of {library.package} "
                f"{library.version}; leave one of them out",
                value=(other, library),
            )
    return tuple(distinct.values())


def link(
    executable: relax.VMExecutable,
    used: Sequence[BackendTarget],
    output: Path,
    context: BuildContext,
    *,
    one_pool: bool = True,
) -> CompiledLibrary:
    """Link an executable into a shared library that finds what it requires in ``lib/`` beside it.

    Parameters
    ----------
    executable : relax.VMExecutable
        As :func:`~collage.backends.compile.build_executable` made it.
    used : sequence of BackendTarget
        Those whose libraries it is linked against.
    output : Path
        The shared library to write.
    context : BuildContext
        Where to build.
    one_pool : bool
        Run TVM's parallel loops on the OpenMP pool of the libraries. False leaves them on TVM's
        own pool, which is only of use to measure what two pools cost.

    Raises
    ------
    OutputError
        When the place cannot be written.
    CompileError
        When the linker fails; has its words.
    """
    bundled = {
        path.name: path
        for backend, target in members_of(BundlesLibraries, used)
        for path in backend.shared_libraries(target)
    }
    companions = {
        path.name: path
        for backend, target in members_of(ShipsLibraries, used)
        for path in backend.companion_libraries(target)
    }
    named = ((t.backend, b.runtime(t)) for b, t in members_of(NeedsRuntime, used))
    runtimes = {backend: runtime for backend, runtime in named if runtime}
    required = library_requirements(used)
    libraries = [*bundled.values(), *(library.path for library in required)]
    pool = [native.num_threads_object(context)]
    if one_pool:
        pool.append(native.thread_pool_object(context))
    _export(executable, output, pool, libraries, context)
    shipped = {**companions, **bundled}
    return CompiledLibrary(output, tuple(shipped.values()), required, runtimes)


def _export(
    executable: relax.VMExecutable,
    output: Path,
    objects: Sequence[Path],
    libraries: Sequence[Path],
    context: BuildContext,
) -> None:
    flags = ["-shared", "-fPIC", "-fopenmp", "-Wl,-rpath,$ORIGIN/lib", "-Wl,--build-id=none"]
    # TVM names options before objects, where a linker that defaults to --as-needed drops libraries.
    flags += ["-Wl,--push-state,--no-as-needed", *map(str, libraries), "-Wl,--pop-state"]
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=context.work_dir) as workspace:
            executable.export_library(
                str(output),
                addons=[str(path) for path in objects],
                workspace_dir=workspace,
                options=flags,
                cc=context.cxx,
            )
    except OSError as err:
        raise OutputError(f"cannot write '{output}': {err.strerror}", value=str(output)) from err
    except RuntimeError as err:
        # Under a heading, and over the command line, TVM has the linker's own words.
        lines = [line.strip() for line in str(err).splitlines() if line.strip()]
        reason = lines[1] if len(lines) > 1 else str(err)
        raise CompileError(f"linking '{output.name}' failed: {reason}", value=str(err)) from err


def stage_libraries(library: CompiledLibrary, *, copy: bool) -> list[Path]:
    """Put what a library needs into ``lib/`` beside it; returns where.

    Parameters
    ----------
    library : CompiledLibrary
        As it was linked.
    copy : bool
        Copies, to deploy; links otherwise, to measure here.

    Examples
    --------
    >>> blas = Path("libopenblas.so.0")
    >>> blas.touch()
    >>> stage_libraries(CompiledLibrary(Path("model.so"), (blas,)), copy=True)
    [PosixPath('lib/libopenblas.so.0')]
    """
    folder = library.path.parent / "lib"
    staged = [folder / path.name for path in library.shared_libraries]
    for path, place in zip(library.shared_libraries, staged, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        # Never written through: what lies there may be a link to the very library.
        place.unlink(missing_ok=True)
        if copy:
            shutil.copy2(path, place)
        else:
            place.symlink_to(path.resolve())
    return staged
