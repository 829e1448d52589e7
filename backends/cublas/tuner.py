"""Timing cublasLt's candidate algorithms while compiling, where a GPU of the target is there.

The timing itself is a small library (``cublas_tuner.cc``), compiled once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import tvm

from collage.backends import native
from collage.backends.base import BuildContext, LibraryNeed
from collage.backends.cublas.algorithms import AlgorithmLog, Choice, Device, choice_key
from collage.backends.cublas.problem import Problem
from collage.backends.cuda_runtime import has_device
from collage.backends.cuda_toolkit import CUDA_HEADER, find_toolkit
from collage.backends.device_lock import exclusive
from collage.backends.errors import CodegenError

TEMPLATES = Path(__file__).resolve().parent / "templates"
HEADERS = ("cublas_plan.h", "cublas_problem.h")
CANDIDATES = 24
"""How many of cublasLt's guesses are timed."""


def choose(
    problems: Sequence[Problem],
    arch: str,
    libraries: Iterable[LibraryNeed],
    include: Path,
    context: BuildContext,
) -> dict[Problem, Choice]:
    """The algorithms of the given products; empty where no GPU of that architecture is there.

    Parameters
    ----------
    arch : str
        For example ``sm_90a``.
    libraries : iterable of LibraryNeed
        cublasLt and the CUDA runtime.
    include : Path
        Folder of ``cublasLt.h``.

    Raises
    ------
    CodegenError
        When cublasLt has no algorithm for a product, or timing fails.
    """
    if not _gpu_is(arch):
        return {}
    library = tuner_library(libraries, include, context)
    log = AlgorithmLog(context.cache_dir / "cublas" / "algorithms.jsonl")
    return Tuner(library, str(tvm.cuda(0).device_name)).choose(problems, log)


def _gpu_is(arch: str) -> bool:
    if not has_device():
        return False
    number = "".join(filter(str.isdigit, arch))
    return str(tvm.cuda(0).compute_version).replace(".", "") == number


def compile_source(name: str, include: Path, context: BuildContext) -> Path:
    """Compile one of this backend's C++ files, once per content.

    Parameters
    ----------
    name : str
        Of a file among the templates.
    include : Path
        Folder of ``cublasLt.h``; its structures differ between versions, so its content counts.
    """
    folders = dict.fromkeys([include, find_toolkit().include])
    flags = ["-fvisibility=hidden", *(f"-I{folder}" for folder in folders)]
    depends = [
        *(TEMPLATES / header for header in HEADERS),
        *(CUDA_HEADER, native.FFI_HEADER),
        *(include / header for header in ("cublasLt.h", "cublas_api.h")),
    ]
    flags += native.ffi_include_flags()
    return native.compile_cached(TEMPLATES / name, context, flags, depends)


def tuner_library(libraries: Iterable[LibraryNeed], include: Path, context: BuildContext) -> Path:
    """The library that times algorithms, compiled once per content."""
    compiled = compile_source("cublas_tuner.cc", include, context)
    output = compiled.with_suffix(".so")
    if not output.exists():
        paths = [need.path for need in libraries]
        with tempfile.TemporaryDirectory(dir=output.parent) as folder:
            made = Path(folder, output.name)
            rpaths = [f"-Wl,-rpath,{path.parent}" for path in paths]
            command = [context.cxx, "-shared", "-o", made, compiled, *paths, *rpaths]
            native.run_tool([str(part) for part in command])
            made.replace(output)
    return output


class Tuner:
    """Times algorithms on the first GPU.

    Parameters
    ----------
    library : Path
        From :func:`tuner_library`.
    device_name : str
        For example ``NVIDIA H200``.
    """

    def __init__(self, library: Path, device_name: str) -> None:
        self._module = tvm.runtime.load_module(str(library))
        facts = tvm.runtime.tensor(np.zeros(4, np.int64))
        try:
            self._module["collage_cublas_facts"](facts)
        except RuntimeError as err:
            raise CodegenError(f"cannot ask the GPU what it is: {err}", value=str(err)) from err
        version, driver, capability, multiprocessors = (int(fact) for fact in facts.numpy())
        self.device = Device(device_name, driver, version, capability, multiprocessors)

    def choose(self, problems: Sequence[Problem], log: AlgorithmLog) -> dict[Problem, Choice]:
        """The algorithm of each product: remembered, or timed while nobody else uses the GPU."""
        keys = {problem: choice_key(problem.fields(), self.device) for problem in problems}
        known = log.read()
        if not known.keys() >= set(keys.values()):
            with exclusive("cuda"):
                # Another process may have measured the same products meanwhile.
                known = log.read()
                for problem, key in keys.items():
                    if key not in known:
                        known[key] = self.measure(problem)
                        log.append(problem, known[key])
        return {problem: known[key] for problem, key in keys.items()}

    def measure(self, problem: Problem) -> Choice:
        """Time cublasLt's candidates for one product.

        Raises
        ------
        CodegenError
            When there is none, or timing fails.
        """
        given = tvm.runtime.tensor(np.array(list(problem.fields().values()), np.int64))
        chosen = tvm.runtime.tensor(np.zeros(9, np.int64))
        times = tvm.runtime.tensor(np.zeros(3, np.float64))
        try:
            self._module["collage_cublas_measure"](given, CANDIDATES, chosen, times)
        except RuntimeError as err:
            raise CodegenError(
                f"cublas cannot choose an algorithm for {problem.describe()}: {err}", value=str(err)
            ) from err
        workspace_bytes, *words = (int(word) for word in chosen.numpy().view(np.uint64))
        time_sec, first_time_sec, measured = (float(value) for value in times.numpy())
        return Choice(
            self.device, tuple(words), workspace_bytes, time_sec, first_time_sec, int(measured)
        )
