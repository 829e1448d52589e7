"""cuBLAS on an NVIDIA GPU: matrix products with cublasLt's epilogues, one operator at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract.abilities import Precompiles, RequiresLibraries, Tunable
from collage.backends.contract.base import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    Granularity,
    LibraryNeed,
    PatternTriple,
)
from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.contract.kernels import Precision, Roofline
from collage.backends.cublas.codegen import choose_algorithms, compile_functions
from collage.backends.cublas.options import CublasOptions
from collage.backends.cublas.partition import read_partition
from collage.backends.cublas.patterns import pattern_table
from collage.backends.cublas.timer import RUNTIME, TIMER, source_compilation
from collage.backends.toolchain.cuda_runtime import device_name
from collage.backends.toolchain.cuda_toolkit import (
    REMEDY,
    arch_of,
    cudart,
    find_header_dir,
    find_library,
)
from collage.backends.toolchain.native import Compilation

SONAME = "libcublasLt.so.13"
HEADER = "cublasLt.h"
PACKAGE = "nvidia-cublas"


class CublasBackend(ExternalBackend, Precompiles, RequiresLibraries, Tunable):
    """Matrix products through ``cublasLtMatmul``."""

    name = "cublas"
    device = "cuda"
    granularity = Granularity.OPERATOR
    options_type = CublasOptions
    constants_as_arguments = True
    aligned_weights = True

    def probe(self) -> Availability:
        try:
            cudart()
            header, _ = find_cublas()
        except BackendUnavailableError as err:
            return Availability(False, reason=str(err), remedy=REMEDY)
        return Availability(True, versions={"cublasLt": header_version(header)})

    def precision(self, options: CublasOptions) -> Precision:
        return Precision.TF32 if options.allow_tf32 else Precision.FLOAT32

    def roofline(self, device: tvm.target.Target) -> Roofline:
        return Roofline(matmul=0.78, convolution=0.50, attention=0.50, memory=0.80)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table(target.options)

    def codegen(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
    ) -> list[tvm.runtime.Module]:
        header, _ = find_cublas()
        (need,) = self.required_libraries(target)
        return [compile_functions(functions, target, need, header.parent, context)]

    def tune(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
    ) -> None:
        if device_name(arch_of(target.device)) is not None:
            header, _ = find_cublas()
            (need,) = self.required_libraries(target)
            partitions = [read_partition(function, target.options) for function in functions]
            choose_algorithms(partitions, target, need, header.parent, context)

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        include = find_cublas()[0].parent
        measured = target.options.algorithm == "measured"
        tunes = measured and device_name(arch_of(target.device)) is not None
        sources = (RUNTIME, TIMER) if tunes else (RUNTIME,)
        return [source_compilation(source, include, context) for source in sources]

    def required_libraries(self, target: BackendTarget) -> Sequence[LibraryNeed]:
        header, library = find_cublas()
        return (LibraryNeed(SONAME, header_version(header), PACKAGE, library),)


def find_cublas() -> tuple[Path, Path]:
    """cublasLt's header and library: from NVIDIA's wheel, the one beside PyTorch, or the toolkit.

    Raises
    ------
    BackendUnavailableError
        When one of them is not installed.
    """
    library = find_library(SONAME)
    beside = None if library is None else library.parent.parent / "include"
    own = beside is not None and (beside / HEADER).is_file()
    folder = beside if own else find_header_dir(HEADER)
    missing = [name for name, found in ((HEADER, folder), (SONAME, library)) if found is None]
    if folder is None or library is None:
        raise BackendUnavailableError(
            f"{' and '.join(missing)} not found in package {PACKAGE} or a CUDA toolkit; {REMEDY}",
            value=missing,
        )
    return folder / HEADER, library


def header_version(header: Path) -> str:
    """The library's version, as ``cublas_api.h`` beside the header has it, for example 13.1.0."""
    text = (header.parent / "cublas_api.h").read_text(encoding="utf-8", errors="replace")
    numbers = dict(re.findall(r"#define CUBLAS_VER_(MAJOR|MINOR|PATCH) (\d+)", text))
    return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))


def backend() -> CublasBackend:
    """A new instance, for the registry."""
    return CublasBackend()
