"""cuBLAS on an NVIDIA GPU: matrix products with cublasLt's epilogues, one operator at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    HoldsMemory,
    LibraryRequirement,
    PatternTriple,
    Precision,
    Precompiles,
    RequiresLibraries,
    Roofline,
    TunesOneByOne,
)
from collage.backends.cublas.codegen import choose_algorithms, compile_functions
from collage.backends.cublas.library import find_installation
from collage.backends.cublas.options import CublasOptions
from collage.backends.cublas.partition import read_partition
from collage.backends.cublas.patterns import pattern_table
from collage.backends.cublas.timer import RUNTIME, TIMER, source_compilation
from collage.backends.storage.tuning_stage import nobody_builds, telling_indices
from collage.backends.toolchain.compiling import Compilation
from collage.backends.toolchain.cuda_runtime import device_name
from collage.backends.toolchain.cuda_toolkit import arch_of, cudart


class CublasBackend(ExternalBackend, HoldsMemory, Precompiles, RequiresLibraries, TunesOneByOne):
    """Matrix products through ``cublasLtMatmul``.

    Examples
    --------
    >>> backend = CublasBackend()
    >>> options = backend.parse_options({"allow_tf32": True})
    >>> options.algorithm, backend.precision(options)
    ('measured', <Precision.TF32: 'tf32'>)
    """

    name = "cublas"
    device = "cuda"
    options_type = CublasOptions
    constants_as_arguments = True
    aligned_weights = True

    def probe(self) -> Availability:
        return Availability.of(_versions)

    def precision(self, options: CublasOptions) -> Precision:
        return Precision.TF32 if options.allow_tf32 else Precision.FLOAT32

    def precisions(self) -> Mapping[Precision, Mapping[str, Any]]:
        return {Precision.TF32: {"allow_tf32": True}}

    def roofline(self, device: tvm.target.Target) -> Roofline:
        return Roofline(matmul=0.78, convolution=0.50, attention=0.50, memory=0.80)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table(target.options)

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        found = find_installation()
        return [compile_functions(functions, target, found.library, found.include, context)]

    def tune(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> None:
        self.tune_each(functions, target, context, nobody_builds)

    def tune_each(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
        settled: Callable[[int], None],
    ) -> None:
        if device_name(arch_of(target.device), context) is not None:
            found = find_installation()
            partitions = [read_partition(function, target.options) for function in functions]
            tell = telling_indices([partition.problem for partition in partitions], settled)
            choose_algorithms(partitions, target, found.library, found.include, context, tell)

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        include = find_installation().include
        measured = target.options.algorithm == "measured"
        tunes = measured and device_name(arch_of(target.device), context) is not None
        sources = (RUNTIME, TIMER) if tunes else (RUNTIME,)
        return [source_compilation(source, include, context) for source in sources]

    def required_libraries(self, target: BackendTarget) -> Sequence[LibraryRequirement]:
        return (find_installation().library,)

    def weight_copies(self, function: relax.Function, target: BackendTarget) -> int:
        return 0

    def workspace_bytes(self, target: BackendTarget) -> int:
        return int(target.options.workspace_limit)


def _versions() -> Mapping[str, str]:
    cudart()
    return {"cublasLt": find_installation().library.version}


def backend() -> CublasBackend:
    """A new instance, for the registry."""
    return CublasBackend()
