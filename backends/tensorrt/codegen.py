"""From partition functions to a static library: engines as data, stubs, one runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import CodegenError
from collage.backends.tensorrt import python_runtime
from collage.backends.tensorrt.library import Package
from collage.backends.tensorrt.runtimes import Shim, find_shim
from collage.backends.tensorrt.tuning import EngineBuilder
from collage.backends.toolchain import compiling, cuda_toolkit, native
from collage.backends.toolchain.stubs import Stubs

TEMPLATES = Path(__file__).resolve().parent / "templates"
HEADER = TEMPLATES / "collage_tensorrt.h"


def compile_functions(
    functions: Sequence[relax.Function],
    package: Package,
    target: BackendTarget,
    context: BuildContext,
) -> tvm.runtime.Module:
    """Build the engines of one IRModule and make a library of them.

    Parameters
    ----------
    functions, target, context
        As :meth:`ExternalBackend.codegen` gets them.
    package : Package
        Builds the engines.

    Returns
    -------
    tvm.runtime.Module
        A static library that exports the partitions' symbols, with the engines as read-only data.

    Raises
    ------
    CodegenError
        When TensorRT refuses regions; has every one's reason.
    CompileError
        When the C++ compiler fails; carries its standard error.
    """
    engines, refused = EngineBuilder(package, target, context).engines(functions)
    if refused:
        reasons = (f"tensorrt cannot compile '{name}': {why}" for name, why in refused.items())
        raise CodegenError("; ".join(reasons), value=refused)
    plans = [np.frombuffer(engine.plan, np.uint8) for engine in engines]
    symbols = [native.constant_symbol(plan) for plan in plans]
    shim = find_shim(package)
    if shim is None:
        # Whoever compiles may run the library at once, without loading a bundle.
        python_runtime.install(package)
    stubs = Stubs.render(
        TEMPLATES,
        [engine.symbol for engine in engines],
        dict(zip(symbols, plans, strict=True)),
        entries=list(zip(engines, symbols, strict=True)),
    )
    return stubs.compile([runtime_compilation(shim, context).run()], context)


def runtime_compilation(shim: Shim | None, context: BuildContext) -> compiling.Compilation:
    """How the runtime is compiled.

    Parameters
    ----------
    shim : Shim or None
        What calls TensorRT from C++; without one Python does.
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    native.Compilation
        Not run yet.

    Raises
    ------
    BackendUnavailableError
        When there is a shim but no CUDA toolkit, whose headers its runtime includes.
    """
    flags = ["-fvisibility=hidden", *compiling.ffi_include_flags()]
    depends = [HEADER, compiling.FFI_HEADER]
    if shim is None:
        return compiling.cached_compilation(TEMPLATES / "runtime_python.c", context, flags, depends)
    toolkit = cuda_toolkit.find_toolkit()
    flags += [f"-I{shim.include}", f"-I{toolkit.include}"]
    depends += [cuda_toolkit.CUDA_HEADER, shim.include / "NvInferVersion.h"]
    return compiling.cached_compilation(TEMPLATES / "runtime_shim.cc", context, flags, depends)
