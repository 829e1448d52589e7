"""CUTLASS on an NVIDIA GPU: kernels generated for each problem, one operator at a time.

Headers come from the ``nvidia-cutlass`` wheel; nvcc compiles what a model needs.
"""

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
    PatternTriple,
    Precision,
    Precompiles,
    Roofline,
    TunesOneByOne,
)
from collage.backends.cutlass.codegen import (
    compile_functions,
    read_partitions,
    runtime_compilation,
    tune,
)
from collage.backends.cutlass.families import families
from collage.backends.cutlass.library import cutlass_version
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.profiler import program_compilation
from collage.backends.storage.tuning_stage import nobody_builds, telling_indices
from collage.backends.toolchain.compiling import Compilation
from collage.backends.toolchain.cuda_runtime import device_name
from collage.backends.toolchain.cuda_toolkit import arch_of, cudart, find_toolkit


class CutlassBackend(ExternalBackend, Precompiles, TunesOneByOne):
    """Matrix products, convolutions, norms and attention through CUTLASS kernels.

    Examples
    --------
    >>> backend = CutlassBackend()
    >>> backend.precision(backend.parse_options({})), backend.device
    (<Precision.TF32X3: '3xtf32'>, 'cuda')
    """

    name = "cutlass"
    device = "cuda"
    options_type = CutlassOptions
    constants_as_arguments = True
    aligned_weights = True

    def probe(self) -> Availability:
        return Availability.of(_versions)

    def precision(self, options: CutlassOptions) -> Precision:
        if options.allow_tf32:
            return Precision.TF32
        return Precision.TF32X3 if options.use_3xtf32 else Precision.FLOAT32

    def precisions(self) -> Mapping[Precision, Mapping[str, Any]]:
        return {Precision.TF32: {"allow_tf32": True}}

    def roofline(self, device: tvm.target.Target) -> Roofline:
        return Roofline(matmul=0.72, convolution=0.60, attention=0.55, memory=0.80)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        arch = arch_of(target.device)
        return [triple for family in families() for triple in family.patterns(target.options, arch)]

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        return [compile_functions(functions, families(), target, context)]

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        arch = arch_of(target.device)
        runtime = runtime_compilation(context, arch)
        return (
            [runtime, program_compilation(context, arch)]
            if device_name(arch, context)
            else [runtime]
        )

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
        arch = arch_of(target.device)
        if device_name(arch, context) is not None:
            partitions = read_partitions(functions, families(), target.options, arch)
            tell = telling_indices([partition.spec for partition in partitions], settled)
            tune(partitions, target, context, tell)


def _versions() -> Mapping[str, str]:
    versions = {"cutlass": cutlass_version(), "nvcc": find_toolkit().version}
    cudart()
    return versions


def backend() -> CutlassBackend:
    """A new instance, for the registry."""
    return CutlassBackend()
