"""onnxruntime on a CPU: whole regions as ONNX models, run by its CPU provider."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    Granularity,
    HoldsMemory,
    PatternTriple,
    Precompiles,
    Roofline,
    ShipsLibraries,
)
from collage.backends.onnxruntime.codegen import compile_functions, runtime_compilation
from collage.backends.onnxruntime.library import find_installation
from collage.backends.onnxruntime.options import OnnxruntimeOptions
from collage.backends.onnxruntime.patterns import pattern_table
from collage.backends.toolchain.compiling import Compilation


class OnnxruntimeBackend(ExternalBackend, HoldsMemory, ShipsLibraries, Precompiles):
    """Regions of a network through onnxruntime.

    Examples
    --------
    >>> backend = OnnxruntimeBackend()
    >>> backend.parse_options({"blocked": False}).blocked, backend.granularity
    (False, <Granularity.GRAPH: 'graph'>)
    """

    name = "onnxruntime"
    granularity = Granularity.GRAPH
    options_type = OnnxruntimeOptions
    own_threads = True

    def probe(self) -> Availability:
        return Availability.of(lambda: {"onnxruntime": find_installation().version})

    def roofline(self, device: tvm.target.Target) -> Roofline:
        return Roofline(0.85, 0.70, partition_sec=6e-6, operator_sec=1.5e-6)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table()

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        return [compile_functions(functions, target.options, find_installation(), context)]

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        return [runtime_compilation(context)]

    def companion_libraries(self, target: BackendTarget) -> Sequence[Path]:
        return (find_installation().library,)

    def weight_copies(self, function: relax.Function, target: BackendTarget) -> int:
        return 1

    def workspace_bytes(self, target: BackendTarget) -> int:
        return 0


def backend() -> OnnxruntimeBackend:
    """The instance to register; the entry point of this backend."""
    return OnnxruntimeBackend()
