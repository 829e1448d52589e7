"""TensorRT on an NVIDIA GPU: whole regions as engines, built while compiling.

Works with the ``tensorrt`` package and with ``tensorrt_rtx``, TensorRT for RTX.
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
    Granularity,
    HoldsMemory,
    JudgesRegions,
    LibraryRequirement,
    LimitsCapture,
    NeedsRuntime,
    PatternTriple,
    Precision,
    Precompiles,
    RefusesPartitions,
    RequiresLibraries,
    Roofline,
    Verdict,
)
from collage.backends.contract.errors import TargetError
from collage.backends.tensorrt import python_runtime
from collage.backends.tensorrt.codegen import compile_functions, runtime_compilation
from collage.backends.tensorrt.library import REMEDY, find_package, require_package
from collage.backends.tensorrt.options import TensorrtOptions
from collage.backends.tensorrt.patterns import pattern_table
from collage.backends.tensorrt.regions import accepts
from collage.backends.tensorrt.runtimes import find_shim, package_for, runtime_name
from collage.backends.tensorrt.tuning import EngineBuilder
from collage.backends.toolchain import cuda_toolkit
from collage.backends.toolchain.compiling import Compilation


class TensorrtBackend(
    ExternalBackend,
    HoldsMemory,
    JudgesRegions,
    LimitsCapture,
    NeedsRuntime,
    Precompiles,
    RefusesPartitions,
    RequiresLibraries,
):
    """Regions of a network as TensorRT engines.

    Examples
    --------
    >>> backend = TensorrtBackend()
    >>> backend.precision(backend.parse_options({"use_fp16": True})), backend.granularity
    (<Precision.FLOAT16: 'float16'>, <Granularity.GRAPH: 'graph'>)
    """

    name = "tensorrt"
    device = "cuda"
    granularity = Granularity.GRAPH
    options_type = TensorrtOptions

    def probe(self) -> Availability:
        package, reason = find_package()
        if package is None:
            return Availability(False, reason=reason, remedy=REMEDY)
        return Availability(True, versions={package.name: package.version})

    def parse_options(self, attributes: Mapping[str, Any]) -> TensorrtOptions:
        """See :meth:`Backend.parse_options`.

        Raises
        ------
        TargetError
            Also when another version is installed than the one that is asked for.
        """
        options = super().parse_options(attributes)
        assert isinstance(options, TensorrtOptions)
        package, _ = find_package() if options.tensorrt_version else (None, "")
        if package is not None and not options.fits_version(package.version):
            raise TargetError(
                f"target 'tensorrt' wants version {options.tensorrt_version}, "
                f"but {package.name} {package.version} is installed",
                value=options.tensorrt_version,
            )
        return options

    def precision(self, options: TensorrtOptions) -> Precision:
        if options.use_bf16 or options.use_int8:
            return Precision.BFLOAT16
        if options.use_fp16:
            return Precision.FLOAT16
        return Precision.TF32 if options.use_tf32 else Precision.FLOAT32

    def precisions(self) -> Mapping[Precision, Mapping[str, Any]]:
        return {Precision.TF32: {"use_tf32": True}}

    def roofline(self, device: tvm.target.Target) -> Roofline:
        return Roofline(matmul=0.72, convolution=0.66, attention=0.58, memory=0.82)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table(target.options)

    def accepts_region(self, operators: Sequence[relax.Expr], target: BackendTarget) -> Verdict:
        package, reason = find_package()
        if package is None:
            return Verdict.no(reason)
        refusal = package.refusal(cuda_toolkit.arch_of(target.device))
        return Verdict.no(refusal) if refusal else accepts(operators, target.options)

    def refusals(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> Mapping[str, str]:
        builder = EngineBuilder(require_package(target.options), target, context)
        # The engines are remembered, so that codegen finds them.
        return builder.engines(functions)[1]

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        package = require_package(target.options)
        return [compile_functions(functions, package, target, context)]

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        return [runtime_compilation(find_shim(require_package(target.options)), context)]

    def required_libraries(self, target: BackendTarget) -> Sequence[LibraryRequirement]:
        shim = find_shim(require_package(target.options))
        return () if shim is None else (shim.library,)

    def cuda_graph_safe(self, target: BackendTarget) -> bool:
        # TensorRT for RTX compiles kernels on the device and says of a context, not beforehand,
        # whether a stream may be captured while it runs.
        return require_package(target.options).needs_gpu

    def runtime(self, target: BackendTarget) -> str:
        package = require_package(target.options)
        return runtime_name(package, find_shim(package))

    def load_runtime(self, name: str) -> None:
        package = package_for(name)
        if package is not None:
            python_runtime.install(package)

    def weight_copies(self, function: relax.Function, target: BackendTarget) -> int:
        return 1

    def workspace_bytes(self, target: BackendTarget) -> int:
        return int(target.options.max_workspace_size)


def backend() -> TensorrtBackend:
    """The instance to register; the entry point of this backend."""
    return TensorrtBackend()
