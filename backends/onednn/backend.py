"""oneDNN on a CPU: whole regions with their own layouts, packed weights and fused chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    BundlesLibraries,
    ExternalBackend,
    Granularity,
    HoldsMemory,
    JudgesRegions,
    PatternTriple,
    Precision,
    Precompiles,
    Roofline,
    TakesLayouts,
    Verdict,
)
from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.onednn.codegen import compile_functions, runtime_compilations
from collage.backends.onednn.library import find_installation
from collage.backends.onednn.options import BFLOAT16_FLAGS, BYTES_FLAGS, OnednnOptions
from collage.backends.onednn.packed import packed_share
from collage.backends.onednn.patterns import pattern_table
from collage.backends.onednn.patterns.products import multiplies
from collage.backends.relax.byte_products import accepts_bytes
from collage.backends.relax.calls.layouts import depends_on_layout
from collage.backends.toolchain.compiling import Compilation


class OnednnBackend(
    ExternalBackend, BundlesLibraries, HoldsMemory, JudgesRegions, Precompiles, TakesLayouts
):
    """Regions of convolutions, matrix products and what stands between them, through oneDNN.

    Examples
    --------
    >>> from tvm.target import Target
    >>> target = BackendTarget.of("onednn", Target("llvm"), {"layout": "nhwc"})
    >>> patterns = OnednnBackend().patterns(target)
    >>> patterns[0].name.startswith("onednn.")
    True
    """

    name = "onednn"
    granularity = Granularity.GRAPH
    options_type = OnednnOptions

    def probe(self) -> Availability:
        return Availability.of(lambda: {"onednn": find_installation().version})

    def precision(self, options: OnednnOptions) -> Precision:
        return Precision(options.precision)

    def precisions(self) -> Mapping[Precision, Mapping[str, Any]]:
        return {
            Precision.BFLOAT16: {"precision": "bfloat16"},
            Precision.INT8: {"precision": "int8"},
        }

    def takes_other_layout(self, operators: Sequence[relax.Expr], target: BackendTarget) -> bool:
        return any(map(depends_on_layout, operators))

    def accepts_region(self, operators: Sequence[relax.Expr], target: BackendTarget) -> Verdict:
        if target.options.precision == "float32":
            return Verdict.yes()
        if target.options.precision == "int8":
            return accepts_bytes(operators, bool(BYTES_FLAGS & cpu_flags_here()))
        if not BFLOAT16_FLAGS & cpu_flags_here():
            return Verdict.no("this processor multiplies no bfloat16")
        if not any(map(multiplies, operators)):
            return Verdict.no("nothing in it is multiplied: float32 is computed the same way")
        return Verdict.yes()

    def roofline(self, device: tvm.target.Target) -> Roofline:
        return Roofline(0.90, 0.80, partition_sec=0.8e-6, operator_sec=0.5e-6)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table()

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        return [compile_functions(functions, target.options, find_installation().include, context)]

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        return runtime_compilations(find_installation().include, context)

    def shared_libraries(self, target: BackendTarget) -> Sequence[Path]:
        return (find_installation().library,)

    def weight_copies(self, function: relax.Function, target: BackendTarget) -> float:
        return packed_share(function, target.options)

    def workspace_bytes(self, target: BackendTarget) -> int:
        return 0


def backend() -> OnednnBackend:
    """The instance to register; the entry point of this backend."""
    return OnednnBackend()
