"""OpenVINO on a CPU: whole regions as models of OpenVINO's own, run by its CPU plugin."""

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
    ExternalBackend,
    Granularity,
    HoldsMemory,
    JudgesRegions,
    PatternTriple,
    Precision,
    Precompiles,
    Roofline,
    ShipsLibraries,
    TakesLayouts,
    Verdict,
)
from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.openvino.codegen import compile_functions, runtime_compilation
from collage.backends.openvino.library import cpu_capabilities, find_installation
from collage.backends.openvino.options import BFLOAT16_FLAGS, CAPABILITIES, OpenvinoOptions
from collage.backends.openvino.patterns import pattern_table
from collage.backends.relax.byte_products import accepts_bytes
from collage.backends.relax.calls.layouts import depends_on_layout
from collage.backends.toolchain.compiling import Compilation


class OpenvinoBackend(
    ExternalBackend, HoldsMemory, ShipsLibraries, JudgesRegions, Precompiles, TakesLayouts
):
    """Regions of a network through OpenVINO.

    Examples
    --------
    >>> backend = OpenvinoBackend()
    >>> backend.precision(backend.parse_options({"precision": "bfloat16"})), backend.granularity
    (<Precision.BFLOAT16: 'bfloat16'>, <Granularity.GRAPH: 'graph'>)
    """

    name = "openvino"
    granularity = Granularity.GRAPH
    options_type = OpenvinoOptions
    own_threads = True

    def probe(self) -> Availability:
        return Availability.of(lambda: {"openvino": find_installation().version})

    def precision(self, options: OpenvinoOptions) -> Precision:
        return Precision(options.precision)

    def stored_as(self, options: OpenvinoOptions) -> Precision:
        return Precision(options.computed_in)

    def precisions(self) -> Mapping[Precision, Mapping[str, Any]]:
        return {
            Precision.BFLOAT16: {"precision": "bfloat16"},
            Precision.FLOAT16: {"precision": "float16"},
            Precision.INT8: {"precision": "int8", **_between()},
        }

    def roofline(self, device: tvm.target.Target) -> Roofline:
        return Roofline(0.90, 0.80, partition_sec=6e-6, operator_sec=1.2e-6)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table()

    def takes_other_layout(self, operators: Sequence[relax.Expr], target: BackendTarget) -> bool:
        return any(map(depends_on_layout, operators))

    def accepts_region(self, operators: Sequence[relax.Expr], target: BackendTarget) -> Verdict:
        precision = target.options.precision
        # Every processor has float32; asking for more takes a moment.
        if precision == "int8":
            return accepts_bytes(operators, CAPABILITIES[precision] in cpu_capabilities())
        if precision != "float32" and CAPABILITIES[precision] not in cpu_capabilities():
            return Verdict.no(f"this processor has no instructions for {precision}")
        return Verdict.yes()

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        return [compile_functions(functions, target.options, find_installation(), context)]

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        return [runtime_compilation(find_installation(), context)]

    def companion_libraries(self, target: BackendTarget) -> Sequence[Path]:
        installation = find_installation()
        return (installation.library, *installation.companions)

    def weight_copies(self, function: relax.Function, target: BackendTarget) -> int:
        return 1

    def workspace_bytes(self, target: BackendTarget) -> int:
        return 0


def _between() -> dict[str, str]:
    """What stands between products of bytes may be off by as little as they are."""
    return {"between": "bfloat16"} if BFLOAT16_FLAGS & cpu_flags_here() else {}


def backend() -> OpenvinoBackend:
    """The instance to register; the entry point of this backend."""
    return OpenvinoBackend()
