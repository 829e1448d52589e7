"""The small library that times cublasLt's candidate algorithms, and what it tells of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm

from collage.backends.contract import BuildContext, LibraryRequirement
from collage.backends.contract.errors import CodegenError
from collage.backends.cublas.problem import Problem
from collage.backends.devices import CUDA
from collage.backends.storage import exclusive
from collage.backends.toolchain import compiling
from collage.backends.toolchain.artifact_cache import make_once
from collage.backends.toolchain.cuda_toolkit import CUDA_HEADER, find_toolkit

TEMPLATES = Path(__file__).resolve().parent / "templates"
RUNTIME, TIMER = "cublas_runtime.cc", "cublas_tuner.cc"
CANDIDATES = 24
"""How many of cublasLt's guesses are timed."""


@dataclass(frozen=True)
class Device:
    """What a choice depends on besides the product and cublasLt.

    Attributes
    ----------
    name : str
        For example ``NVIDIA H200``.
    driver : int
        CUDA's driver version, ``1000 * major + 10 * minor``.
    compute_capability : int
        For example 90.
    multiprocessors : int
    """

    name: str
    driver: int
    compute_capability: int
    multiprocessors: int


@dataclass(frozen=True)
class Choice:
    """An algorithm for a product, and where it holds.

    Attributes
    ----------
    device : Device
        What it was timed on.
    version : int
        cublasLt's version, as ``cublasLtGetVersion`` has it.
    algorithm : tuple of int
        The eight 64-bit words of ``cublasLtMatmulAlgo_t``.
    time_sec, first_time_sec : float
        Of one launch: this algorithm's, and that of cublasLt's first guess.
    measured : int
        How many algorithms were timed.
    """

    device: Device
    version: int
    algorithm: tuple[int, ...]
    workspace_bytes: int
    time_sec: float
    first_time_sec: float
    measured: int

    def comment(self) -> str:
        """One line for the generated source."""
        return (
            f"the fastest of {self.measured} on {self.device.name}: {self.time_sec * 1e6:.2f} us, "
            f"cublasLt's first guess {self.first_time_sec * 1e6:.2f} us"
        )


def compile_source(name: str, include: Path, context: BuildContext) -> Path:
    """Compile one of this backend's C++ files, once per content.

    Parameters
    ----------
    name : str
        A file of the templates.
    include : Path
        Folder of ``cublasLt.h``.
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    Path
        The object.
    """
    return source_compilation(name, include, context).run()


def source_compilation(name: str, include: Path, context: BuildContext) -> compiling.Compilation:
    """How one of this backend's C++ files is compiled.

    Parameters
    ----------
    name : str
        Of a file among the templates.
    include : Path
        Folder of ``cublasLt.h``; its structures differ between versions, so its content counts.
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    compiling.Compilation
        Not run yet.
    """
    folders = dict.fromkeys([include, find_toolkit().include])
    flags = ["-fvisibility=hidden", *(f"-I{folder}" for folder in folders)]
    depends = [
        *sorted(TEMPLATES.glob("*.h")),
        *(CUDA_HEADER, compiling.FFI_HEADER),
        *(include / header for header in ("cublasLt.h", "cublas_api.h")),
    ]
    flags += compiling.ffi_include_flags()
    return compiling.cached_compilation(TEMPLATES / name, context, flags, depends)


def timer_library(
    libraries: Iterable[LibraryRequirement], include: Path, context: BuildContext
) -> Path:
    """The library that times algorithms, compiled once per content.

    Parameters
    ----------
    libraries : iterable of LibraryRequirement
        What it is linked with: cublasLt and CUDA's runtime.
    include : Path
        Folder of ``cublasLt.h``.
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    Path
        A shared library beside the object.
    """
    compiled = compile_source(TIMER, include, context)
    paths = [library.path for library in libraries]
    rpaths = [f"-Wl,-rpath,{path.parent}" for path in paths]
    command = [context.cxx, "-shared", *map(str, (compiled, *paths)), *rpaths]
    return make_once(
        compiled.with_suffix(".so"), lambda path: compiling.run_tool([*command, "-o", str(path)])
    )


class Timer:
    """Times algorithms on the first GPU.

    Parameters
    ----------
    library : Path
        From :func:`timer_library`.
    device_name : str
        For example ``NVIDIA H200``.

    Raises
    ------
    CodegenError
        When the GPU cannot be asked what it is.
    """

    def __init__(self, library: Path, device_name: str) -> None:
        self._module = tvm.runtime.load_module(str(library))
        facts = tvm.runtime.tensor(np.zeros(4, np.int64))
        try:
            self._module["collage_cublas_facts"](facts)
        except RuntimeError as err:
            raise CodegenError(f"cannot ask the GPU what it is: {err}", value=str(err)) from err
        version, driver, capability, multiprocessors = (int(fact) for fact in facts.numpy())
        self.version = version
        self.device = Device(device_name, driver, capability, multiprocessors)

    def measure(self, problem: Problem) -> Choice:
        """Time cublasLt's candidates for one product.

        The device is held for the timing only: others time theirs while this one is prepared.

        Raises
        ------
        CodegenError
            When there is none, or timing fails.
        """
        given = tvm.runtime.tensor(np.array(list(problem.fields().values()), np.int64))
        chosen = tvm.runtime.tensor(np.zeros(9, np.int64))
        times = tvm.runtime.tensor(np.zeros(3, np.float64))
        try:
            prepared = self._module["collage_cublas_prepare"](given, CANDIDATES)
            try:
                with exclusive(CUDA):
                    self._module["collage_cublas_measure"](prepared, chosen, times)
            finally:
                self._module["collage_cublas_discard"](prepared)
        except RuntimeError as err:
            raise CodegenError(
                f"cublas cannot choose an algorithm for {problem.describe()}: {err}", value=str(err)
            ) from err
        workspace_bytes, *words = (int(word) for word in chosen.numpy().view(np.uint64))
        time_sec, first_time_sec, measured = (float(value) for value in times.numpy())
        return Choice(
            self.device,
            self.version,
            tuple(words),
            workspace_bytes,
            time_sec,
            first_time_sec,
            int(measured),
        )
