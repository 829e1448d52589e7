"""From a partitioned IRModule to one shared library: the step that measuring and deploying share.

One pass over the whole module: native backends lower their partitions to scheduled PrimFuncs, then
``RunCodegen`` calls each external backend once with all of its functions, TVM compiles the rest and
everything is linked on one thread pool.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract import (
    BackendTarget,
    BuildContext,
    BundlesLibraries,
    ExternalBackend,
    LibraryRequirement,
    NativeBackend,
    NeedsRuntime,
    RequiresLibraries,
    members_of,
)
from collage.backends.contract.errors import CompileError, OutputError, TargetError
from collage.backends.contract.registry import CodegenFailures, codegen_options
from collage.backends.devices import common_device
from collage.backends.relax.cuda_graph import all_capturable, copy_shared_inputs
from collage.backends.relax.lift_constants import lift_constants
from collage.backends.toolchain import native


@dataclass(frozen=True)
class CompiledLibrary:
    """A linked library and what it needs.

    Attributes
    ----------
    path : Path
        The shared library, loadable with ``tvm.runtime.load_module``.
    shared_libraries : tuple of Path
        Libraries it needs; copied to ``lib/`` beside it when a bundle is made.
    required : tuple of LibraryRequirement
        Libraries it needs that the machine must have.
    runtimes : mapping of str to str
        By backend, what else runs its partitions.
    """

    path: Path
    shared_libraries: tuple[Path, ...]
    required: tuple[LibraryRequirement, ...] = ()
    runtimes: Mapping[str, str] = field(default_factory=dict)


def lower_native(
    mod: tvm.IRModule, targets: Sequence[BackendTarget], context: BuildContext
) -> tvm.IRModule:
    """Let every native backend lower its partitions."""
    for backend, target in members_of(NativeBackend, targets):
        mod = backend.lower(mod, target, context)
    return mod


def external_functions(mod: tvm.IRModule, backend: ExternalBackend) -> list[relax.Function]:
    """A partitioned module's functions of one backend, as its code generator gets them."""
    if backend.constants_as_arguments:
        mod = lift_constants(mod, {backend.name})
    functions = mod.functions.values()
    return [f for f in functions if f.attrs and f.attrs.get("Codegen") == backend.name]


def codegen_names(mod: tvm.IRModule) -> set[str]:
    """The external code generators that a module's functions ask for."""
    attrs = (func.attrs for func in mod.functions.values() if func.attrs)
    return {str(a["Codegen"]) for a in attrs if "Codegen" in a}


def build_executable(
    mod: tvm.IRModule,
    targets: Sequence[BackendTarget],
    context: BuildContext,
    *,
    cuda_graph: bool = False,
) -> relax.VMExecutable:
    """Compile a partitioned module in memory; the result still has to be linked.

    Parameters
    ----------
    cuda_graph : bool
        Whether the virtual machine captures kernels into CUDA graphs.

    Raises
    ------
    CodegenError, CompileError
        As a backend's code generator raised them.
    """
    context.work_dir.mkdir(parents=True, exist_ok=True)
    kind = common_device(targets)
    kind.prepare_compiler(context)
    if cuda_graph:
        mod = copy_shared_inputs(mod)
    mod = lower_native(mod, targets, context)
    used = codegen_names(mod)
    external = members_of(ExternalBackend, targets)
    mod = lift_constants(mod, {b.name for b, _ in external if b.constants_as_arguments})
    failures = CodegenFailures()
    options = {
        t.backend: codegen_options(t, context, failures) for t in targets if t.backend in used
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
    with ExitStack() as stack:
        device = stack.enter_context(kind.compiling(targets[0].device, context))
        if cuda_graph:
            config = {"relax.backend.use_cuda_graph": True}
            stack.enter_context(tvm.transform.PassContext(config=config))
        try:
            return tvm.compile(mod, target=device)
        except (RuntimeError, ValueError, TypeError) as err:
            # An error of ours has lost its type on the way through TVM's compiler.
            lines = str(err).strip().splitlines() or [type(err).__name__]
            raise CompileError(
                f"TVM cannot compile the module: {lines[0]}", value=str(err)
            ) from err


def library_requirements(targets: Sequence[BackendTarget]) -> tuple[LibraryRequirement, ...]:
    """Libraries that the machine must have to run what these targets compile.

    Raises
    ------
    TargetError
        When two targets need different libraries of the same name, which one process cannot load.
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
    one_pool : bool
        Run TVM's parallel loops on the OpenMP pool of the libraries. False leaves them on TVM's
        own pool, which is only of use to measure what two pools cost.

    Raises
    ------
    OutputError
        When the place cannot be written.
    """
    libraries: dict[str, Path] = {}
    runtimes: dict[str, str] = {}
    for bundling, target in members_of(BundlesLibraries, used):
        libraries.update({path.name: path for path in bundling.shared_libraries(target)})
    for running, target in members_of(NeedsRuntime, used):
        if name := running.runtime(target):
            runtimes[target.backend] = name
    flags = ["-shared", "-fPIC", "-fopenmp", "-Wl,-rpath,$ORIGIN/lib", "-Wl,--build-id=none"]
    # TVM names options before objects, where a linker that defaults to --as-needed drops libraries.
    required = library_requirements(used)
    paths = [*libraries.values(), *(library.path for library in required)]
    flags += ["-Wl,--push-state,--no-as-needed", *map(str, paths), "-Wl,--pop-state"]
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
        # Under a heading, and over the command line, TVM has the linker's own words.
        lines = [line.strip() for line in str(err).splitlines() if line.strip()]
        reason = lines[1] if len(lines) > 1 else str(err)
        raise CompileError(f"linking '{output.name}' failed: {reason}", value=str(err)) from err
    return CompiledLibrary(output, tuple(libraries.values()), required, runtimes)


def compile_module(
    mod: tvm.IRModule,
    targets: Sequence[BackendTarget],
    output: Path,
    context: BuildContext,
    *,
    cuda_graph: bool = False,
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
    cuda_graph : bool
        Whether a CUDA library captures its kernels into graphs, as far as its backends allow.
    """
    used = codegen_names(mod)
    linked = [t for t in targets if t.backend in used]
    capture = cuda_graph and common_device(targets).captures_graphs and all_capturable(linked)
    executable = build_executable(mod, targets, context, cuda_graph=capture)
    return link(executable, linked or targets[:1], output, context)


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
