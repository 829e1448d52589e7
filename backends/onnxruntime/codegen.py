"""From partition functions to a static library: models as data, stubs, one runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CodegenError
from collage.backends.onnxruntime import converters  # noqa: F401 - registers them
from collage.backends.onnxruntime.library import OnnxruntimeInstallation, python_api
from collage.backends.onnxruntime.model import ELEMENT_TYPES, WEIGHTS
from collage.backends.onnxruntime.options import OnnxruntimeOptions
from collage.backends.onnxruntime.problem import Region, write_region
from collage.backends.relax.partitions.region_tensors import region_tensor
from collage.backends.toolchain import compiling, native
from collage.backends.toolchain.children.freed_memory import return_freed_memory
from collage.backends.toolchain.children.mapped_pages import forget_pages
from collage.backends.toolchain.shared_bytes import SharedBytes
from collage.backends.toolchain.stubs import Stubs

TEMPLATES = Path(__file__).resolve().parent / "templates"

_EXTENDED, _ALL = 2, 99
"""``GraphOptimizationLevel``: the latter lays tensors out in blocks of channels."""


def compile_functions(
    functions: Sequence[relax.Function],
    options: OnnxruntimeOptions,
    installation: OnnxruntimeInstallation,
    context: BuildContext,
) -> tvm.runtime.Module:
    """Write the models of one IRModule and make a library of them.

    Parameters
    ----------
    functions, options, context
        As :meth:`ExternalBackend.codegen` gets them, the options with the target.
    installation : OnnxruntimeInstallation
        Whose library is opened when the first region is run.

    Returns
    -------
    tvm.runtime.Module
        A static library that holds the models and exports the partitions' symbols.

    Raises
    ------
    CodegenError
        When onnxruntime does not take a function.
    """
    context.work_dir.mkdir(parents=True, exist_ok=True)
    pool = SharedBytes(context.work_dir)
    regions = [write_region(function, pool) for function in functions]
    forget_pages(context.work_dir)  # The module's weights, where they are mapped.
    shared = pool.data()
    for region in regions:
        _load(region, shared)
    return_freed_memory()
    models = [np.frombuffer(region.model, np.uint8) for region in regions]
    arrays = {native.constant_symbol(array): array for array in (*models, shared)}
    stubs = Stubs.render(
        TEMPLATES,
        [region.symbol for region in regions],
        arrays,
        {"region_tensor": region_tensor},
        entries=[
            (region, native.constant_symbol(model), len(model))
            for region, model in zip(regions, models, strict=True)
        ],
        weights=(native.constant_symbol(shared), len(shared), WEIGHTS),
        library=installation.library.name,
        level=_ALL if options.blocked else _EXTENDED,
        settings=_settings_of(context),
        element_types=ELEMENT_TYPES,
    )
    runtime = runtime_compilation(context).run()
    return stubs.compile([runtime], context)


def _settings_of(context: BuildContext) -> Mapping[str, str]:
    """Entries of a session's configuration (``onnxruntime_session_options_config_keys.h``)."""
    return {
        # Threads wait for each other's work at their cores while a region runs, and leave them to
        # the other backends' threads as soon as it has.
        "session.intra_op.allow_spinning": "1",
        "session.force_spinning_stop": "1",
        "session.set_denormal_as_zero": "0" if context.ieee_denormals else "1",
    }


def _load(region: Region, weights: NDArray[np.uint8]) -> None:
    """Let onnxruntime read a region, so that what it refuses is known before it is deployed."""
    api = python_api()
    options = api.SessionOptions()
    # Kernels are looked for whatever is optimized; that, and packing weights, can wait.
    options.graph_optimization_level = api.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # The binding keeps no reference to it: the caller has one.
    options.add_external_initializers_from_files_in_memory([WEIGHTS], [weights], [len(weights)])
    try:
        api.InferenceSession(region.model, options, providers=["CPUExecutionProvider"])
    except Exception as err:
        # What its binding raises has no common class but this.
        if not type(err).__module__.startswith("onnxruntime"):
            raise
        reason = str(err).strip().splitlines()[-1]
        raise CodegenError(
            f"onnxruntime cannot compile '{region.symbol}': {reason}", value=region.symbol
        ) from err


def runtime_compilation(context: BuildContext) -> compiling.Compilation:
    """How the runtime is compiled.

    Parameters
    ----------
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    compiling.Compilation
        Not run yet.
    """
    flags = ["-fvisibility=hidden", *compiling.ffi_include_flags()]
    shared = ("collage_ffi.h", "denormal_flags.h", "collage_region.h", "region_runtime.h")
    own = (TEMPLATES / name for name in ("collage_onnxruntime.h", "ort_functions.h"))
    depends = [*own, *(compiling.TEMPLATES / name for name in shared)]
    return compiling.cached_compilation(
        TEMPLATES / "onnxruntime_runtime.c", context, flags, depends
    )
