"""From partition functions to a static library: models as data, stubs, one runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CodegenError
from collage.backends.openvino import converters  # noqa: F401 - registers them
from collage.backends.openvino.library import OpenvinoInstallation, python_api
from collage.backends.openvino.model import DTYPES
from collage.backends.openvino.options import PRECISIONS, OpenvinoOptions
from collage.backends.openvino.problem import Region, write_region
from collage.backends.openvino.weights import share_constants
from collage.backends.relax.partitions.region_tensors import region_tensor
from collage.backends.toolchain import compiling, native
from collage.backends.toolchain.children.freed_memory import return_freed_memory
from collage.backends.toolchain.children.mapped_pages import forget_pages
from collage.backends.toolchain.stubs import Stubs

TEMPLATES = Path(__file__).resolve().parent / "templates"
HEADER = TEMPLATES / "collage_openvino.h"

ELEMENT_TYPES = {name: kind.upper() for name, kind in DTYPES.items()}
"""Relax dtypes and ``ov_element_type_e``."""


def compile_functions(
    functions: Sequence[relax.Function],
    options: OpenvinoOptions,
    installation: OpenvinoInstallation,
    context: BuildContext,
) -> tvm.runtime.Module:
    """Write the models of one IRModule and make a library of them.

    Parameters
    ----------
    functions, options, context
        As :meth:`ExternalBackend.codegen` gets them, the options with the target.
    installation : OpenvinoInstallation
        Whose headers the runtime includes.

    Returns
    -------
    tvm.runtime.Module
        A static library that holds the models and exports the partitions' symbols.

    Raises
    ------
    CodegenError
        When OpenVINO does not take a function.
    """
    properties = _properties_of(options, context)
    regions = [write_region(function) for function in functions]
    context.work_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=context.work_dir) as folder:
        written = [region.write(Path(folder)) for region in regions]
    for region in regions:
        _compile(region, properties)
    return_freed_memory()
    forget_pages(context.work_dir)  # The module's weights, where they are mapped.
    texts, shared = share_constants(written, context.work_dir)
    forget_pages(context.work_dir)
    # A library in C takes text that ends with a zero.
    models = [np.frombuffer(text.encode() + b"\0", np.uint8) for text in texts]
    arrays = {native.constant_symbol(array): array for array in (*models, shared)}
    stubs = Stubs.render(
        TEMPLATES,
        [region.symbol for region in regions],
        arrays,
        {"region_tensor": region_tensor},
        entries=[
            (region, native.constant_symbol(model), len(model) - 1)
            for region, model in zip(regions, models, strict=True)
        ],
        weights=(native.constant_symbol(shared), len(shared)),
        library=installation.library.name,
        properties=properties,
        element_types=ELEMENT_TYPES,
    )
    runtime = runtime_compilation(installation, context).run()
    return stubs.compile([runtime], context, [f"-I{installation.include}"])


def _properties_of(options: OpenvinoOptions, context: BuildContext) -> dict[str, str]:
    """What OpenVINO is told when it compiles a model, besides the number of threads."""
    exact = options.precision == "float32"
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_PRECISION_HINT": PRECISIONS[options.computed_in],
        "EXECUTION_MODE_HINT": "ACCURACY" if exact else "PERFORMANCE",
        # As many threads as the other backends have, on whatever cores; they share these cores.
        "ENABLE_HYPER_THREADING": "YES",
        "ENABLE_CPU_PINNING": "NO",
        "CPU_DENORMALS_OPTIMIZATION": "NO" if context.ieee_denormals else "YES",
    }


def _compile(region: Region, properties: Mapping[str, str]) -> None:
    """Let OpenVINO compile a region, so that what it refuses is known before it is deployed."""
    # Said here, what becomes of denormals would stay with this thread.
    said = {key: value for key, value in properties.items() if "DENORMALS" not in key}
    try:
        python_api().Core().compile_model(region.model, "CPU", said)
    except RuntimeError as err:
        reason = str(err).strip().splitlines()[-1]
        raise CodegenError(
            f"openvino cannot compile '{region.symbol}': {reason}", value=region.symbol
        ) from err


def runtime_compilation(
    installation: OpenvinoInstallation, context: BuildContext
) -> compiling.Compilation:
    """How the runtime is compiled.

    Parameters
    ----------
    installation : OpenvinoInstallation
        Whose headers it includes.
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    compiling.Compilation
        Not run yet.
    """
    include = installation.include
    flags = ["-fvisibility=hidden", f"-I{include}", *compiling.ffi_include_flags()]
    headers = sorted((include / "openvino" / "c").glob("*.h"))
    shared = ("denormal_flags.h", "collage_region.h", "region_runtime.h")
    own = (HEADER, compiling.FFI_HEADER, *(compiling.TEMPLATES / name for name in shared))
    depends = [*own, *headers]
    return compiling.cached_compilation(TEMPLATES / "openvino_runtime.c", context, flags, depends)
