"""Timing cublasLt's candidate algorithms while compiling, where a GPU of the target is there.

The timing itself is a small library (``cublas_tuner.cc``), compiled once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from collage.backends.contract.base import BuildContext, LibraryNeed
from collage.backends.contract.errors import CodegenError
from collage.backends.cublas.problem import Problem
from collage.backends.cublas.tuning import (
    SCHEMA,
    Choice,
    Device,
    choice_key,
    find_choice,
    keep_choice,
)
from collage.backends.devices import CUDA
from collage.backends.storage.device_lock import exclusive
from collage.backends.storage.tuning_store import TuningStore
from collage.backends.toolchain import native
from collage.backends.toolchain.artifact_cache import make_once
from collage.backends.toolchain.cuda_runtime import device_name
from collage.backends.toolchain.cuda_toolkit import (
    CUDA_HEADER,
    compute_capability,
    cudart,
    find_toolkit,
)

TEMPLATES = Path(__file__).resolve().parent / "templates"
HEADERS = ("cublas_plan.h", "cublas_problem.h")
RUNTIME, TUNER = "cublas_runtime.cc", "cublas_tuner.cc"
CANDIDATES = 24
"""How many of cublasLt's guesses are timed."""


def choose(
    problems: Sequence[Problem],
    arch: str,
    library: LibraryNeed,
    include: Path,
    context: BuildContext,
) -> dict[Problem, Choice]:
    """The algorithms of the given products: remembered, or timed.

    Where no GPU of that architecture is there, those remembered of the one that was timed on last;
    products that nobody has timed have none.

    Parameters
    ----------
    arch : str
        For example ``sm_90a``.
    library : LibraryNeed
        cublasLt.
    include : Path
        Folder of ``cublasLt.h``.

    Raises
    ------
    CodegenError
        When cublasLt has no algorithm for a product, or timing fails.
    ReplayMissError
        In a replay, when a product's is not remembered.
    """
    log = TuningStore.of("cublas", SCHEMA, context)
    name = device_name(arch)
    if name is not None:
        tuner = Tuner(tuner_library([library, cudart()], include, context), name)
        return tuner.choose(problems, log)
    device = log.device_elsewhere(compute_capability(arch))
    version = version_number(library.version)
    known = {} if device is None else _known(problems, log, version, device)
    if log.replay:
        _require(problems, known, log)
    return known


def _known(
    problems: Iterable[Problem], log: TuningStore, version: int, device: Mapping[str, Any]
) -> dict[Problem, Choice]:
    """What the log knows."""
    found = {problem: find_choice(log, problem, version, device) for problem in problems}
    return {problem: choice for problem, choice in found.items() if choice is not None}


def _require(
    problems: Iterable[Problem], known: Mapping[Problem, Choice], log: TuningStore
) -> None:
    """Raise a replay's error when one is not known."""
    missing = [problem for problem in dict.fromkeys(problems) if problem not in known]
    if missing:
        raise log.miss(missing[0].describe(), len(missing))


def version_number(version: str) -> int:
    """cublasLt's version as ``cublasLtGetVersion`` has it: 131000 of 13.10.0."""
    major, minor, patch = map(int, version.split("."))
    return 10000 * major + 100 * minor + patch


def compile_source(name: str, include: Path, context: BuildContext) -> Path:
    """Compile one of this backend's C++ files, once per content."""
    return source_compilation(name, include, context).run()


def source_compilation(name: str, include: Path, context: BuildContext) -> native.Compilation:
    """How one of this backend's C++ files is compiled.

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
    return native.cached_compilation(TEMPLATES / name, context, flags, depends)


def tuner_library(libraries: Iterable[LibraryNeed], include: Path, context: BuildContext) -> Path:
    """The library that times algorithms, compiled once per content."""
    compiled = compile_source(TUNER, include, context)
    paths = [need.path for need in libraries]
    rpaths = [f"-Wl,-rpath,{path.parent}" for path in paths]
    command = [context.cxx, "-shared", *map(str, (compiled, *paths)), *rpaths]
    return make_once(
        compiled.with_suffix(".so"), lambda path: native.run_tool([*command, "-o", str(path)])
    )


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
        self.version = version
        self.device = Device(device_name, driver, capability, multiprocessors)

    def choose(self, problems: Sequence[Problem], log: TuningStore) -> dict[Problem, Choice]:
        """The algorithm of each product: remembered, or timed while nobody else uses the GPU.

        Raises
        ------
        CodegenError
            When cublasLt has none for a product, or timing fails.
        ReplayMissError
            In a replay, when a product's is not remembered.
        """
        device = asdict(self.device)
        known = _known(problems, log, self.version, device)
        if log.replay:
            _require(problems, known, log)
        errors: list[CodegenError] = []
        for problem in dict.fromkeys(problems):
            if problem in known:
                continue
            # Whoever waits here for another process finds what that one has measured.
            with log.claim([choice_key(problem, self.version)]):
                choice = find_choice(log, problem, self.version, device)
                if choice is None:
                    try:
                        choice = self.measure(problem)
                    except CodegenError as err:
                        # The others' choices are of use all the same.
                        errors.append(err)
                        continue
                    keep_choice(log, problem, choice)
            known[problem] = choice
        if errors:
            raise errors[0]
        return known

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
