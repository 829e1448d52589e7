"""From an executable in memory to a shared library, and what that needs beside it or installed."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.support.cc import create_shared

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
from collage.backends.contract.context import default_context
from collage.backends.contract.errors import CompileError, OutputError, TargetError
from collage.backends.contract.relax_codegen import named_targets
from collage.backends.devices import common_device
from collage.backends.storage import OwnFolder, scratch_parent
from collage.backends.toolchain import compiling, native
from collage.backends.toolchain.cuda_runtime import never_let_go
from collage.backends.toolchain.elf.import_library import import_library
from collage.backends.toolchain.load_requirements import load_libraries, load_runtimes
from collage.backends.toolchain.openmp_pool import on_pool, uses_more, wrapping
from collage.backends.toolchain.packed_imports import pack_imports


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
    weights : tuple of Path
        Files that it maps, in ``weights/`` beside it; empty where it has its weights inside.

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
    weights: tuple[Path, ...] = ()


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

    Returns
    -------
    CompiledLibrary
        With the libraries that have to lie beside it, and those that the machine must have.

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
    # Two targets of one backend bring its runtime twice, which is the same whatever their options.
    pool = [native.num_threads_object(context)]
    if one_pool:
        pool.append(native.thread_pool_object(context))
    flags = ["-Wl,-z,muldefs"] if len({t.backend for t in used}) < len(used) else []
    shipped = {**companions, **bundled}
    threads = common_device(used).threads(context)
    if threads is not None:
        wrapped = [*flags, *wrapping(threads)]
        _export(executable, output, pool, [threads, *libraries], context, wrapped)
        if not uses_more(output, threads):
            moved = [on_pool(path, threads, context) for path in shipped.values()]
            return CompiledLibrary(output, (threads, *moved), required, runtimes)
    _export(executable, output, pool, libraries, context, flags)
    return CompiledLibrary(output, tuple(shipped.values()), required, runtimes)


def finalize(
    executable: relax.VMExecutable, output: str | Path | None = None
) -> tvm.runtime.Module:
    """Link and load what TVM's own ``RunCodegen`` and ``tvm.compile`` made with our backends.

    Nothing has to be said of the backends: what their code generators returned says it.

    Parameters
    ----------
    executable : relax.VMExecutable
        What ``tvm.compile`` gave.
    output : path, optional
        The shared library to write, with what it needs in ``lib/`` beside it; by default one that
        goes when the process ends.

    Returns
    -------
    tvm.runtime.Module
        For ``relax.VirtualMachine``.

    Raises
    ------
    BackendUnavailableError
        When this machine lacks a library that it needs.
    CompileError, OutputError
        As :func:`link` raises them.

    Examples
    --------
    >>> import collage
    >>> import numpy as np
    >>> from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
    >>> from collage.testing import graph
    >>> mod = graph([(2, 2)], lambda emit, x: relax.op.matmul(x, x))
    >>> patterns = get_patterns_with_prefix("openblas.")
    >>> passes = [
    ...     relax.transform.FuseOpsByPattern(patterns, bind_constants=True, annotate_codegen=True),
    ...     relax.transform.RunCodegen(),
    ... ]
    >>> executable = tvm.compile(tvm.transform.Sequential(passes)(mod), "llvm")
    >>> machine = relax.VirtualMachine(collage.finalize(executable), tvm.cpu())
    >>> machine["main"](tvm.runtime.tensor(np.ones((2, 2), "float32"))).numpy().tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """
    context = default_context()
    context.work_dir.mkdir(parents=True, exist_ok=True)
    own = output is None
    if output is None:
        # Some libraries open others when they first run.
        folder = OwnFolder(scratch_parent())
        atexit.register(folder.remove)
        output = folder.path / "model.so"
    targets = named_targets(executable.mod)
    if targets:
        library = link(executable, targets, Path(output), context)
    else:
        _export(executable, Path(output), [], [], context)
        library = CompiledLibrary(Path(output), ())
    stage_libraries(library, copy=not own)
    load_libraries(library.required)
    load_runtimes(library.runtimes)
    return tvm.runtime.load_module(str(library.path))


class _Linking:
    """What TVM calls to link an executable's objects.

    Where it compiles nothing for the processor it has written an empty source in C besides, and
    the compiler would be started for that.
    """

    get_target_triple = staticmethod(create_shared.get_target_triple)

    def __call__(self, output: str, files: Sequence[str], **arguments: Any) -> None:
        sources = {name for name in files if name.endswith(".c")}
        empty = {name for name in sources if Path(name).read_bytes().strip() in (b"", b";")}
        create_shared(output, [name for name in files if name not in empty], **arguments)


def _export(
    executable: relax.VMExecutable,
    output: Path,
    objects: Sequence[Path],
    libraries: Sequence[Path],
    context: BuildContext,
    more_flags: Sequence[str] = (),
) -> None:
    flags = ["-shared", "-fPIC", "-fopenmp", "-Wl,-rpath,$ORIGIN/lib", "-Wl,--build-id=none"]
    flags += [*compiling.ffi_include_flags(), *more_flags]
    needed = [str(import_library(library, context)) for library in libraries]
    # TVM names options before objects, where a linker that defaults to --as-needed drops libraries.
    flags += ["-Wl,--push-state,--no-as-needed", *needed, "-Wl,--pop-state"]
    never_let_go(executable)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=context.work_dir) as workspace:
            executable.export_library(
                str(output),
                addons=[str(path) for path in objects],
                workspace_dir=workspace,
                options=flags,
                cc=context.cxx,
                fcompile=_Linking(),
                fpack_imports=partial(pack_imports, like=native.num_threads_object(context)),
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

    Returns
    -------
    list of Path
        A path in ``lib/`` for each of the libraries, in their order.

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
