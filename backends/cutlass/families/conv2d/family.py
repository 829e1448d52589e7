"""Convolutions: CUTLASS's implicit GEMM, forward, NHWC data and OHWI weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from collage.backends.contract import PatternTriple
from collage.backends.contract.errors import CodegenError
from collage.backends.cutlass.families._base import (
    Configuration,
    KernelSource,
    KernelSpec,
    OperatorFamily,
    Reading,
)
from collage.backends.cutlass.families.conv2d.configurations import Conv2dConfiguration, candidates
from collage.backends.cutlass.families.conv2d.patterns import (
    PREFIX,
    composite_name,
    epilogues,
    pattern_table,
)
from collage.backends.cutlass.families.conv2d.problem import (
    Conv2dProblem,
    check_epilogue,
    float32_math,
    is_product,
    read_problem,
)
from collage.backends.cutlass.families.gemm.configurations import GemmConfiguration
from collage.backends.cutlass.families.gemm.configurations import (
    configurations as gemm_configurations,
)
from collage.backends.cutlass.families.gemm.family import problem_of
from collage.backends.cutlass.families.gemm.render import (
    ACTIVATION_CODES,
    ELEMENTS,
    INSTRUCTIONS,
    LAST_LIGHT,
    RESIDUAL_CODES,
)
from collage.backends.cutlass.families.gemm.render import render as render_gemm
from collage.backends.cutlass.families.hopper import HopperKernel, HopperTile, render_hopper
from collage.backends.cutlass.library import TEMPLATES
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.partitions.composites import Composite, compiling
from collage.backends.relax.tensor_spec import TensorSpec
from collage.backends.toolchain.source_templates import source_templates

_ITERATORS = {
    "optimized": "kOptimized",
    "analytic": "kAnalytic",
    "few": "kFewChannels",
    "fixed": "kFixedChannels",
}
KERNELS = {
    "sm80": ("conv2d/sm80.h", "Conv2dSm80"),
    "split_k": ("conv2d/split.h", "Conv2dSplit"),
}
"""Header and name of the class template of every kind of CUTLASS's kernels."""
_HOPPER = HopperKernel("conv2d/sm90.h", "Conv2dSm90")


class Conv2dFamily(OperatorFamily):
    """``relax.nn.conv2d`` with one group, and its epilogues.

    A convolution that is a plain product of its pixels and its weights runs on the kernels of the
    ``matmul`` family.

    Examples
    --------
    >>> Conv2dFamily().patterns(CutlassOptions(), "sm_90a")[0].name.startswith("cutlass.conv2d")
    True
    """

    name: ClassVar[str] = "conv2d"
    prefixes: ClassVar[tuple[str, ...]] = (PREFIX,)

    def __init__(self) -> None:
        self._epilogues = {composite_name(epilogue): epilogue for epilogue in epilogues()}
        self._by_name = {epilogue.name: epilogue for epilogue in epilogues()}
        self._templates = source_templates(TEMPLATES, keep_trailing_newline=True)

    def patterns(self, options: CutlassOptions, arch: str) -> Sequence[PatternTriple]:
        return pattern_table(options)

    def read(self, composite: Composite, options: CutlassOptions, arch: str) -> Reading:
        """See :meth:`OperatorFamily.read`.

        Raises
        ------
        CodegenError
            When it is no fused convolution.
        """
        name = composite.name
        epilogue = self._epilogues.get(name)
        if epilogue is None:
            raise CodegenError(f"'{name}' is no fused convolution", value=name)
        call, joined = composite.take_apart("relax.nn.conv2d", epilogue.stages)
        with compiling("cutlass", name):
            problem = read_problem(call, options)
            check_epilogue(problem, epilogue)
            math = "tensor" if problem.bits == 16 else float32_math(options)
        arguments = [*call.args, *(joined[n] for n in ("bias", "residual") if n in joined)]
        spec = KernelSpec(
            operator="conv2d",
            sizes=problem.sizes(),
            dtype=problem.dtype,
            math=math,
            layout="nhwc",
            epilogue=epilogue.name,
            inputs=tuple(TensorSpec.of(arg) for arg in arguments),
            output=TensorSpec((problem.n, problem.p, problem.q, problem.k), problem.dtype),
        )
        return Reading.of(composite, spec, arguments)

    def configurations(
        self, spec: KernelSpec, options: CutlassOptions, arch: str
    ) -> Sequence[Configuration]:
        problem = Conv2dProblem.from_sizes(spec.sizes, spec.dtype)
        if is_product(problem):
            product = self._product(spec)
            return gemm_configurations(problem_of(product), product, options, arch)
        return candidates(problem, options, arch)

    def launch_sizes(self, spec: KernelSpec, configuration: Configuration) -> tuple[int, ...]:
        if isinstance(configuration, GemmConfiguration):
            return (*self._product(spec).sizes, configuration.slices)
        assert isinstance(configuration, Conv2dConfiguration)
        return (*spec.sizes, *self._codes(spec), configuration.split_k)

    def render(self, spec: KernelSpec, configuration: Configuration) -> KernelSource:
        if isinstance(configuration, GemmConfiguration):
            return render_gemm(self._product(spec), configuration)
        assert isinstance(configuration, Conv2dConfiguration)
        _, activation, residual, after = self._codes(spec)
        heavy, source = max(activation, after) > LAST_LIGHT, residual != RESIDUAL_CODES[""]
        shape = (configuration.tile_m, configuration.tile_n, configuration.tile_k)
        stem = f"conv2d_{configuration.kind}_{spec.math}_{'x'.join(map(str, shape))}"
        if configuration.kind == "sm90":
            text = render_hopper(
                *(_HOPPER, HopperTile(*shape), spec.dtype), heavy=heavy, source=source
            )
            return KernelSource(stem, text)
        header, kernel = KERNELS[configuration.kind]
        text = self._templates.get_template("conv2d/conv2d.cu.jinja").render(
            conf=configuration,
            header=header,
            kernel=kernel,
            element=ELEMENTS[spec.dtype],
            instruction=", ".join(map(str, INSTRUCTIONS[spec.math])),
            math_operator="OpMultiplyAddFastF32" if spec.math == "3xtf32" else "OpMultiplyAdd",
            iterator=_ITERATORS.get(configuration.iterator, ""),
            heavy=heavy,
            source=source,
        )
        return KernelSource(stem, text)

    def _codes(self, spec: KernelSpec) -> tuple[int, int, int, int]:
        """Bias or none, activation, residual and last activation, as the kernels number them."""
        epilogue = self._by_name[spec.epilogue]
        return (
            int(epilogue.bias),
            ACTIVATION_CODES[epilogue.activation],
            RESIDUAL_CODES[epilogue.residual],
            ACTIVATION_CODES[epilogue.final],
        )

    def _product(self, spec: KernelSpec) -> KernelSpec:
        """The matrix product that a convolution of single pixels is.

        Pixels are its rows; the weights lie as the columns of its right operand.
        """
        problem = Conv2dProblem.from_sizes(spec.sizes, spec.dtype)
        pixels, channels = problem.n * problem.h * problem.w, problem.c
        extents = (pixels, problem.k, channels, 1, channels, channels, 0, 0)
        return dataclasses.replace(
            spec, operator="matmul", sizes=(*extents, *self._codes(spec)), layout="rc"
        )


def family() -> Conv2dFamily:
    """The family of convolutions."""
    return Conv2dFamily()
