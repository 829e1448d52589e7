"""The family of matrix products: dense and batched, with bias, activation and residual."""

from __future__ import annotations

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
from collage.backends.cutlass.families.gemm.configurations import (
    GemmConfiguration,
    configurations,
)
from collage.backends.cutlass.families.gemm.patterns import (
    PREFIX,
    Form,
    form_of,
    pattern_table,
    read_product,
)
from collage.backends.cutlass.families.gemm.problem import (
    GemmProblem,
    float32_math,
)
from collage.backends.cutlass.families.gemm.render import ACTIVATION_CODES, RESIDUAL_CODES, render
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.partitions.composites import Composite, compiling
from collage.backends.relax.tensor_spec import TensorSpec


class MatmulFamily(OperatorFamily):
    """Matrix products.

    Examples
    --------
    >>> family = MatmulFamily()
    >>> family.owns("cutlass.matmul_bias"), family.owns("cutlass.conv2d")
    (True, False)
    """

    name: ClassVar[str] = "matmul"
    prefixes: ClassVar[tuple[str, ...]] = (PREFIX,)

    def patterns(self, options: CutlassOptions, arch: str) -> Sequence[PatternTriple]:
        return pattern_table()

    def read(self, composite: Composite, options: CutlassOptions, arch: str) -> Reading:
        """See :meth:`OperatorFamily.read`.

        Raises
        ------
        CodegenError
            When it is no product of this family's.
        """
        name = composite.name
        form = form_of(name)
        if form is None:
            raise CodegenError(f"'{name}' is no composite of the matmul family", value=name)
        product, joined = composite.take_apart("relax.matmul", form.stages)
        taken = [composite.resolve(arg) for arg in product.args]
        # There may be a permute_dims of the weights in every form: see ``align_weights``.
        stored = [composite.unpermuted(arg) for arg in product.args]
        with compiling("cutlass", name):
            problem = read_product(product, *stored, *taken)
        arguments = [*stored, *(joined[what] for what in ("bias", "residual") if what in joined)]
        return Reading.of(composite, spec_of(problem, form, options), arguments)

    def configurations(
        self, spec: KernelSpec, options: CutlassOptions, arch: str
    ) -> Sequence[Configuration]:
        return configurations(problem_of(spec), spec, options, arch)

    def render(self, spec: KernelSpec, configuration: Configuration) -> KernelSource:
        assert isinstance(configuration, GemmConfiguration)
        return render(spec, configuration)

    def launch_sizes(self, spec: KernelSpec, configuration: Configuration) -> tuple[int, ...]:
        assert isinstance(configuration, GemmConfiguration)
        return (*spec.sizes, configuration.slices)


def family() -> MatmulFamily:
    """The family of matrix products."""
    return MatmulFamily()


def spec_of(problem: GemmProblem, form: Form, options: CutlassOptions) -> KernelSpec:
    """The spec of a problem with what follows it.

    Parameters
    ----------
    problem : GemmProblem
        The extents and strides of the product.
    form : Form
        What follows it.
    options : CutlassOptions
        They decide how float32 is computed.

    Returns
    -------
    KernelSpec
        Its inputs are ``a``, ``b`` and, where the form has them, bias and residual.
    """
    a, b, output = problem.tensors()
    inputs = [a, b]
    if form.bias:
        inputs.append(TensorSpec((problem.n,), problem.dtype))
    if form.residual:
        inputs.append(output)
    return KernelSpec(
        operator="matmul",
        sizes=(
            *(problem.m, problem.n, problem.k, problem.batch, problem.lda, problem.ldb),
            *(problem.batch_stride_a, problem.batch_stride_b),
            int(form.bias),
            ACTIVATION_CODES[form.activation],
            RESIDUAL_CODES[form.residual],
            ACTIVATION_CODES[""],
        ),
        dtype=problem.dtype,
        math="tensor" if problem.bits == 16 else float32_math(options),
        layout=problem.layout,
        epilogue=form.epilogue,
        inputs=tuple(inputs),
        output=output,
    )


def problem_of(spec: KernelSpec) -> GemmProblem:
    """The problem that a spec of this family describes."""
    m, n, k, batch, lda, ldb, stride_a, stride_b = spec.sizes[:8]
    return GemmProblem(m, n, k, batch, lda, ldb, stride_a, stride_b, spec.layout, spec.dtype)
