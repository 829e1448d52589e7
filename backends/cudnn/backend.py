"""cuDNN on an NVIDIA GPU: convolutions, products, pools, softmax, norms and attention.

Every composite is a graph of cuDNN's graph API, one operator with its epilogue at a time. Its
execution plan is chosen at compile time where a GPU is present and embedded; elsewhere the first
call on a device chooses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    Tunable,
)
from collage.backends.cudnn.codegen import compile_functions, plan_functions
from collage.backends.cudnn.library import (
    PLANNER,
    SOURCES,
    find_installation,
    source_compilation,
)
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.patterns import pattern_table
from collage.backends.toolchain import cuda_runtime, cuda_toolkit
from collage.backends.toolchain.compiling import Compilation


class CudnnBackend(ExternalBackend, HoldsMemory, Precompiles, RequiresLibraries, Tunable):
    """Graphs of cuDNN's graph API.

    Examples
    --------
    >>> backend = CudnnBackend()
    >>> backend.parse_options({"algorithm": "measured"}).workspace_limit
    268435456
    """

    name = "cudnn"
    device = "cuda"
    options_type = CudnnOptions
    constants_as_arguments = True

    def probe(self) -> Availability:
        return Availability.of(_versions)

    def precision(self, options: CudnnOptions) -> Precision:
        return Precision.TF32 if options.allow_tf32 else Precision.FLOAT32

    def precisions(self) -> Mapping[Precision, Mapping[str, Any]]:
        return {Precision.TF32: {"allow_tf32": True}}

    def roofline(self, device: tvm.target.Target) -> Roofline:
        return Roofline(matmul=0.70, convolution=0.68, attention=0.62, memory=0.78)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table(target.options, _capability(target))

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        capability = _capability(target)
        installation = find_installation()
        return [compile_functions(functions, target.options, capability, installation, context)]

    def tune(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> None:
        plan_functions(functions, target.options, _capability(target), find_installation(), context)

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        installation = find_installation()
        here = cuda_runtime.device_name(cuda_toolkit.arch_of(target.device), context) is not None
        sources = (*SOURCES, PLANNER) if here else SOURCES
        return [source_compilation(source, installation, context) for source in sources]

    def required_libraries(self, target: BackendTarget) -> Sequence[LibraryRequirement]:
        # libcudnn.so.9 is a door: it opens the libcudnn_*.so.9 in its own folder.
        return (cuda_toolkit.cudart(), find_installation().requirement())

    def weight_copies(self, function: relax.Function, target: BackendTarget) -> int:
        return 0

    def workspace_bytes(self, target: BackendTarget) -> int:
        return int(target.options.workspace_limit)


def _versions() -> Mapping[str, str]:
    found = find_installation()
    return {"cudnn": found.version, "cudart": cuda_toolkit.cudart().version}


def _capability(target: BackendTarget) -> int:
    return cuda_toolkit.compute_capability(cuda_toolkit.arch_of(target.device))


def backend() -> CudnnBackend:
    """A new instance, for the registry."""
    return CudnnBackend()
