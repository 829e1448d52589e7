"""From a partitioned IRModule to one shared library: the step that measuring and deploying share.

One pass over the whole module: native backends lower their partitions to scheduled PrimFuncs, then
``RunCodegen`` calls each external backend once with all of its functions, TVM compiles the rest and
everything is linked on one thread pool.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relax

from collage.backends import native
from collage.backends.base import (
    BackendTarget,
    BuildContext,
    ExternalBackend,
    NativeBackend,
)
from collage.backends.errors import CompileError, OutputError
from collage.backends.registry import CodegenFailures, encode_codegen_options, get_backend


@dataclass(frozen=True)
class CompiledLibrary:
    """A linked library and what it needs.

    Attributes
    ----------
    path : Path
        The shared library, loadable with ``tvm.runtime.load_module``.
    shared_libraries : tuple of Path
        Libraries it needs; copied to ``lib/`` beside it when a bundle is made.
    """

    path: Path
    shared_libraries: tuple[Path, ...]


def lower_native(
    mod: tvm.IRModule, targets: Sequence[BackendTarget], context: BuildContext
) -> tvm.IRModule:
    """Let every native backend lower its partitions."""
    for target in targets:
        backend = get_backend(target.backend)
        if isinstance(backend, NativeBackend):
            mod = backend.lower(mod, target, context)
    return mod


def codegen_names(mod: tvm.IRModule) -> set[str]:
    """The external code generators that a module's functions ask for."""
    attrs = (func.attrs for func in mod.functions.values() if func.attrs)
    return {str(a["Codegen"]) for a in attrs if "Codegen" in a}


def build_executable(
    mod: tvm.IRModule, targets: Sequence[BackendTarget], context: BuildContext
) -> relax.VMExecutable:
    """Compile a partitioned module in memory; the result still has to be linked.

    Raises
    ------
    CodegenError, CompileError
        As a backend's code generator raised them.
    """
    device = targets[0].device
    context.work_dir.mkdir(parents=True, exist_ok=True)
    mod = lower_native(mod, targets, context)
    used = codegen_names(mod)
    failures = CodegenFailures()
    options = {
        t.backend: encode_codegen_options(t, context, failures)
        for t in targets
        if t.backend in used
    }
    try:
        mod = relax.transform.RunCodegen(options)(mod)
    except RuntimeError as err:
        if failures.errors:
            raise failures.errors[0] from err
        raise
    # The code generators embed their own constants; TVM would pack every one of them once more.
    if mod.attrs and "const_name_to_constant" in mod.attrs:
        mod = mod.without_attr("const_name_to_constant")
    return tvm.compile(mod, target=device)


def link(
    executable: relax.VMExecutable,
    used: Sequence[BackendTarget],
    output: Path,
    context: BuildContext,
    *,
    one_pool: bool = True,
) -> CompiledLibrary:
    """Link an executable into a shared library that finds its needs in ``lib/`` beside it.

    Parameters
    ----------
    one_pool : bool
        Run TVM's parallel loops on the OpenMP pool of the libraries. False leaves them on TVM's
        own pool, which is only of use to measure what two pools cost.

    Raises
    ------
    OutputError
        When the place cannot be written.
    """
    libraries: dict[str, Path] = {}
    for target in used:
        backend = get_backend(target.backend)
        if isinstance(backend, ExternalBackend):
            libraries.update({path.name: path for path in backend.shared_libraries(target)})
    flags = ["-shared", "-fPIC", "-fopenmp", "-Wl,-rpath,$ORIGIN/lib", "-Wl,--build-id=none"]
    # TVM names options before objects, where a linker that defaults to --as-needed drops libraries.
    flags += ["-Wl,--push-state,--no-as-needed", *map(str, libraries.values()), "-Wl,--pop-state"]
    pool = [native.num_threads_object(context)]
    if one_pool:
        pool.append(native.thread_pool_object(context))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=context.work_dir) as workspace:
            executable.export_library(
                str(output),
                addons=[str(path) for path in pool],
                workspace_dir=workspace,
                options=flags,
                cc=context.cxx,
            )
    except OSError as err:
        raise OutputError(f"cannot write '{output}': {err.strerror}", value=str(output)) from err
    except RuntimeError as err:
        raise CompileError(f"linking '{output.name}' failed: {err}", value=str(err)) from err
    return CompiledLibrary(output, tuple(libraries.values()))


def compile_module(
    mod: tvm.IRModule, targets: Sequence[BackendTarget], output: Path, context: BuildContext
) -> CompiledLibrary:
    """Compile and link a partitioned module.

    Parameters
    ----------
    mod : tvm.IRModule
        ``main`` calls ``Codegen`` functions and native partition functions.
    targets : sequence of BackendTarget
        All on one device; at least every backend that the module uses.
    output : Path
        The shared library to write.
    """
    used = codegen_names(mod)
    executable = build_executable(mod, targets, context)
    return link(executable, [t for t in targets if t.backend in used], output, context)


def stage_libraries(library: CompiledLibrary, *, copy: bool) -> list[Path]:
    """Put what a library needs into ``lib/`` beside it: copies to deploy, links to measure here."""
    folder = library.path.parent / "lib"
    staged = []
    for path in library.shared_libraries:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / path.name
        # Never written through: what lies there may be a link to the very library.
        place.unlink(missing_ok=True)
        if copy:
            shutil.copy2(path, place)
        else:
            place.symlink_to(path.resolve())
        staged.append(place)
    return staged
