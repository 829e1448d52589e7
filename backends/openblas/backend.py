"""OpenBLAS on a CPU: matrix products with their bias and activation, one operator at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    BundlesLibraries,
    ExternalBackend,
    PatternTriple,
    Precompiles,
    Roofline,
)
from collage.backends.openblas.codegen import compile_functions, runtime_compilations
from collage.backends.openblas.library import find_installation
from collage.backends.openblas.options import OpenBLASOptions
from collage.backends.openblas.patterns import pattern_table
from collage.backends.toolchain.compiling import Compilation


class OpenBLASBackend(ExternalBackend, BundlesLibraries, Precompiles):
    """Matrix products through OpenBLAS's ``cblas_sgemm`` and ``cblas_sgemv``.

    Examples
    --------
    >>> from tvm.target import Target
    >>> target = BackendTarget.of("openblas", Target("llvm"), {"epilogues": False})
    >>> [triple.name for triple in OpenBLASBackend().patterns(target)][0]
    'openblas.matmul'
    """

    name = "openblas"
    options_type = OpenBLASOptions

    def probe(self) -> Availability:
        return Availability.of(lambda: {"openblas": find_installation().version})

    def roofline(self, device: tvm.target.Target) -> Roofline:
        return Roofline(0.65, operator_sec=0.55e-6)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table(target.options)

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        return [compile_functions(functions, target.options, find_installation().include, context)]

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        return runtime_compilations(find_installation().include, context)

    def shared_libraries(self, target: BackendTarget) -> Sequence[Path]:
        return (find_installation().library,)


def backend() -> OpenBLASBackend:
    """A new instance, for the registry."""
    return OpenBLASBackend()
