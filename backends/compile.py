"""From a partitioned IRModule to one shared library: the step that measuring and deploying share.

One pass over the whole module: native backends lower their partitions to scheduled PrimFuncs, then
``RunCodegen`` calls each external backend once with all of its functions, TVM compiles the rest and
everything is linked on one thread pool.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract import (
    BackendTarget,
    BuildContext,
    ExternalBackend,
    NativeBackend,
    members_of,
)
from collage.backends.contract.errors import CollageError, CompileError, telling_line
from collage.backends.contract.relax_codegen import CodegenFailures, codegen_options, target_of
from collage.backends.devices import FLUSHED, common_device
from collage.backends.link import CompiledLibrary, link
from collage.backends.relax.modules.content_names import name_by_content
from collage.backends.relax.modules.courses import put_back, set_aside
from collage.backends.relax.modules.cuda_graph import all_capturable, copy_inputs
from collage.backends.relax.modules.denormals import flush_denormals
from collage.backends.relax.modules.exchanged_constants import make_empty_constants
from collage.backends.relax.modules.lift_constants import lift_constants
from collage.backends.relax.modules.weights_beside import (
    has_weights_beside,
    take_weights_from_files,
)
from collage.backends.toolchain.weight_files import FOLDER

PASSES = {"tirx.use_async_copy": True}
"""What TVM's compiler is told for a GPU: copies that schedules mark go past registers.

Without it they are made at once, as right and slower.
"""


def lower_native(
    mod: tvm.IRModule, targets: Sequence[BackendTarget], context: BuildContext
) -> tvm.IRModule:
    """A module whose native partitions have become scheduled PrimFuncs.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitioned.
    targets : sequence of BackendTarget
        Those of native backends lower their own partitions, in this order.
    context : BuildContext
        Where to build, and with how many threads to run.

    Returns
    -------
    IRModule
        The module itself where no target is a native backend's.

    Raises
    ------
    CompileError
        When TVM gives up on an operator.
    """
    for backend, target in members_of(NativeBackend, targets):
        try:
            mod = backend.lower(mod, target, context)
        except (CollageError, MemoryError):
            raise
        except Exception as err:  # TVM's kernels of single operators raise anything
            raise CompileError(
                f"{backend.name} cannot lower the module: {telling_line(err)}"
            ) from err
    return mod


def external_functions(mod: tvm.IRModule, backend: ExternalBackend) -> list[relax.Function]:
    """A partitioned module's functions of one backend, as its code generator gets them.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitioned.
    backend : ExternalBackend
        Whose functions are wanted.

    Returns
    -------
    list of relax.Function
        Their constants are lifted out of them, as parameters.
    """
    functions = _external(_lift_constants(mod, [backend]))
    return [function for function in functions if function.attrs["Codegen"] == backend.name]


def _external(mod: tvm.IRModule) -> list[relax.Function]:
    return [func for func in mod.functions.values() if func.attrs and "Codegen" in func.attrs]


def codegen_names(mod: tvm.IRModule) -> set[str]:
    """The external code generators that a module's functions ask for."""
    return {str(function.attrs["Codegen"]) for function in _external(mod)}


def used_targets(mod: tvm.IRModule, targets: Sequence[BackendTarget]) -> list[BackendTarget]:
    """The external targets that a module's functions are for, in their order.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitioned.
    targets : sequence of BackendTarget
        What it is compiled for.

    Returns
    -------
    list of BackendTarget
        Each once; empty for a module without partitions.

    Raises
    ------
    TargetError
        When a function is for none of them.
    """
    used = {target_of(function, targets) for function in _external(mod)}
    return [target for target in targets if target in used]


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
    mod, targets, context
        As :func:`compile_module` takes them.
    cuda_graph : bool
        Whether the virtual machine captures kernels into CUDA graphs.

    Returns
    -------
    relax.VMExecutable
        With the libraries of external backends inside, not linked yet.

    Raises
    ------
    CodegenError, CompileError
        As a backend's code generator raised them.
    """
    context.work_dir.mkdir(parents=True, exist_ok=True)
    kind = common_device(targets)
    kind.prepare_compiler(context)
    used = codegen_names(mod)
    mod, courses = set_aside(mod)
    if cuda_graph:
        mod = copy_inputs(mod)
    mod = lower_native(mod, targets, context)
    if kind.links_kernels:
        mod = name_by_content(mod)
    mod = _run_codegen(mod, targets, context)
    mod = put_back(mod, courses)
    if kind.denormals(context) == FLUSHED:
        own = {b.name for b, _ in members_of(ExternalBackend, targets) if b.own_threads}
        mod = flush_denormals(mod, context, with_pool=not used <= own)
    with kind.compiling(targets[0].device, context) as device:
        pipeline = _pipeline(mod, device, kind.runtime_device(), context)
        return _compile_with_tvm(mod, device, pipeline, cuda_graph=cuda_graph)


def _lift_constants(mod: tvm.IRModule, backends: Iterable[ExternalBackend]) -> tvm.IRModule:
    return lift_constants(mod, {b.name for b in backends if b.constants_as_arguments})


def _run_codegen(
    mod: tvm.IRModule, targets: Sequence[BackendTarget], context: BuildContext
) -> tvm.IRModule:
    """Replace the functions of every external backend by its compiled libraries."""
    mod = _lift_constants(mod, (backend for backend, _ in members_of(ExternalBackend, targets)))
    failures = CodegenFailures()
    options = {
        name: codegen_options([t for t in targets if t.backend == name], context, failures)
        for name in codegen_names(mod)
    }
    try:
        mod = relax.transform.RunCodegen(options)(mod)
    except RuntimeError as err:
        if failures.errors:
            raise failures.errors[0] from err
        raise
    # The code generators embed their own constants; TVM would pack every one of them once more.
    packed = mod.attrs and "const_name_to_constant" in mod.attrs
    return mod.without_attr("const_name_to_constant") if packed else mod


def _pipeline(
    mod: tvm.IRModule,
    device: tvm.target.Target,
    place: tvm.runtime.Device,
    context: BuildContext,
) -> tvm.transform.Pass:
    """TVM's own passes for a device, and at their end ours for constants it cannot load."""
    usual = (
        relax.get_default_pipeline(device)
        if "gpu" in device.keys
        else relax.get_pipeline("default")
    )
    if context.weights_dir is None:
        return tvm.transform.Sequential([usual, make_empty_constants()])
    entries = {
        var.name_hint
        for var, function in mod.functions_items()
        if isinstance(function, relax.Function) and "global_symbol" in (function.attrs or {})
    }
    last = take_weights_from_files(entries, place.dlpack_device_type(), context)
    return tvm.transform.Sequential([usual, last, make_empty_constants()])


def _passes(*, cuda_graph: bool) -> tvm.transform.PassContext:
    """The context of whoever calls, with his instruments, and what a GPU needs besides."""
    around = tvm.transform.PassContext.current()
    return tvm.transform.PassContext(
        around.opt_level,
        list(around.required_pass),
        list(around.disabled_pass),
        list(around.instruments or ()),
        {**around.config, **PASSES, "relax.backend.use_cuda_graph": cuda_graph},
    )


def _compile_with_tvm(
    mod: tvm.IRModule,
    device: tvm.target.Target,
    pipeline: tvm.transform.Pass,
    *,
    cuda_graph: bool,
) -> relax.VMExecutable:
    building = _passes(cuda_graph=cuda_graph) if device.kind.name == "cuda" else nullcontext()
    try:
        with building:
            return tvm.compile(mod, target=device, relax_pipeline=pipeline)
    except (RuntimeError, ValueError, TypeError) as err:
        # An error of ours has lost its type on the way through TVM's compiler.
        raise CompileError(
            f"TVM cannot compile the module: {telling_line(err)}", value=str(err)
        ) from err


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
    context : BuildContext
        Where to build, and with how many threads to run.
    cuda_graph : bool
        Whether a CUDA library captures its kernels into graphs, as far as its backends allow.

    Returns
    -------
    CompiledLibrary
        Its ``path`` is ``output``; what it needs beside it is named, not copied.

    Raises
    ------
    CodegenError, CompileError, OutputError
        As :func:`build_executable` and :func:`link` raise them.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(8, 8)], lambda _, x: relax.op.nn.relu(x))
    >>> targets = [BackendTarget.of("tvm", tvm.target.Target("llvm"))]
    >>> context = BuildContext(Path("cache"), Path("scratch"))
    >>> library = compile_module(mod, targets, Path("model.so"), context)
    >>> library.path, [path.name for path in library.shared_libraries]
    (PosixPath('model.so'), ['libcollage_pool.so.1'])
    """
    linked = used_targets(mod, targets)
    capture = cuda_graph and common_device(targets).captures_graphs and all_capturable(linked)
    weights = output.parent / FOLDER
    shutil.rmtree(weights, ignore_errors=True)
    if has_weights_beside(mod, context, reads_mapped=common_device(targets).reads_mapped):
        context = replace(context, weights_dir=weights)
    executable = build_executable(mod, targets, context, cuda_graph=capture)
    library = link(executable, linked or targets[:1], output, context)
    return replace(library, weights=tuple(sorted(weights.glob("*"))))
