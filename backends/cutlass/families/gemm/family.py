"""The family of matrix products: dense and batched, with bias, activation and residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tvm import relax

from collage.backends.contract.base import PatternTriple
from collage.backends.contract.errors import CodegenError, UnsupportedProblemError
from collage.backends.cutlass.families._base import (
    Configuration,
    KernelSource,
    KernelSpec,
    OperatorFamily,
    Reading,
    TensorSpec,
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
from collage.backends.relax.composites import Composite
from collage.backends.relax.patterns import permutation


class MatmulFamily(OperatorFamily):
    """Matrix products."""

    name: ClassVar[str] = "matmul"
    prefixes: ClassVar[tuple[str, ...]] = (PREFIX,)

    def patterns(self, options: CutlassOptions, arch: str) -> Sequence[PatternTriple]:
        return pattern_table()

    def read(self, composite: Composite, options: CutlassOptions, arch: str) -> Reading:
        name = composite.name
        form = form_of(name)
        if form is None:
            raise CodegenError(f"'{name}' is no composite of the matmul family", value=name)
        product = _Product(composite, form)
        try:
            problem = product.problem()
        except UnsupportedProblemError as err:
            raise CodegenError(f"cutlass cannot compile '{name}': {err}", value=name) from err
        return Reading(spec_of(problem, form, options), product.arguments())

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
    """The family, for ``families.py``."""
    return MatmulFamily()


def spec_of(problem: GemmProblem, form: Form, options: CutlassOptions) -> KernelSpec:
    """The spec of a problem with what follows it."""
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


class _Product:
    """A composite of a known form, taken apart."""

    def __init__(self, composite: Composite, form: Form) -> None:
        self.name, self.composite, self.form = composite.name, composite, form
        self.calls = [v for v in composite.bindings.values() if isinstance(v, relax.Call)]
        products = [call for call in self.calls if call.op.name == "relax.matmul"]
        if len(products) != 1:
            raise self.error(f"it holds {len(products)} matrix products")
        self.product = products[0]

    def error(self, what: str) -> CodegenError:
        return CodegenError(f"cutlass cannot compile '{self.name}': {what}", value=self.name)

    def stored(self, side: int) -> relax.Expr:
        """The operand on one side of the product, before a ``permute_dims``.

        There may be one of the weights in every form: see ``align_weights``.
        """
        expr = self.composite.resolve(self.product.args[side])
        return expr if permutation(expr) is None else self.composite.resolve(expr.args[0])

    def problem(self) -> GemmProblem:
        lhs, rhs = (self.composite.resolve(arg) for arg in self.product.args)
        return read_product(self.product, self.stored(0), self.stored(1), lhs, rhs)

    def arguments(self) -> tuple[relax.Var, ...]:
        """The parameters behind the kernel's inputs, in its order."""
        found = [self.parameter(self.stored(0)), self.parameter(self.stored(1))]
        if self.form.bias:
            found.append(self.joined(self.consumer(self.product), "bias"))
        if self.form.residual:
            root = self.composite.root
            if not isinstance(root, relax.Call):
                raise self.error("its result is no operator's")
            found.append(self.joined(root, "residual"))
        return tuple(found)

    def parameter(self, expr: relax.Expr) -> relax.Var:
        if not isinstance(expr, relax.Var):
            raise self.error(f"an operand is not one of its parameters: {expr}")
        return expr

    def consumer(self, call: relax.Call) -> relax.Call:
        """The call that takes another one's result."""
        for value in self.calls:
            for arg in value.args:
                if isinstance(arg, relax.Var) and self.composite.resolve(arg).same_as(call):
                    return value
        raise self.error("nothing follows the product")

    def joined(self, call: relax.Call, what: str) -> relax.Var:
        """The operand of an addition or multiplication that comes from outside."""
        outside = [
            arg for arg in map(self.composite.resolve, call.args) if isinstance(arg, relax.Var)
        ]
        if len(call.args) != 2 or len(outside) != 1:
            raise self.error(f"the {what} is not one of its parameters")
        return outside[0]
