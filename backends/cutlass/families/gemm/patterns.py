"""What of the graph the GEMM kernels take: a matrix product and the epilogues they fuse."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cutlass.families._base import DTYPE_BITS
from collage.backends.cutlass.families.epilogue_patterns import (
    with_checked_activation,
    with_joined_residual,
)
from collage.backends.cutlass.families.gemm.problem import (
    GemmProblem,
    Operand,
    plan,
)
from collage.backends.relax.calls.layouts import permutation
from collage.backends.relax.patterns import Chain, all_of, derives, residual_same_shape, with_bias
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape

PREFIX = "matmul"
ACTIVATIONS = ("relu", "sigmoid", "silu", "gelu", "gelu_tanh", "hardswish")
"""Activations of the kernels' epilogues, in rising priority of their patterns."""
RESIDUALS = ("multiply", "add")


@dataclass(frozen=True)
class Form:
    """What one triple matches: ``residual(activation(a @ b + bias))``.

    Attributes
    ----------
    transposed_a, transposed_b : bool
        Whether the operand is a ``permute_dims`` of its last two axes.
    bias : bool
        Whether one value per column is added first.
    activation, residual : str
        One of :data:`ACTIVATIONS` and of :data:`RESIDUALS`; empty for none.
    """

    transposed_a: bool = False
    transposed_b: bool = False
    bias: bool = False
    activation: str = ""
    residual: str = ""

    @property
    def epilogue(self) -> str:
        """For example ``bias_gelu_add``; ``none`` for nothing."""
        words = ("bias" if self.bias else "", self.activation, self.residual)
        return "_".join(word for word in words if word) or "none"

    @property
    def stages(self) -> list[str]:
        """What follows the product, the last one first; see ``Composite.take_apart``."""
        on = {"residual": self.residual, "activation": self.activation, "bias": self.bias}
        return [stage for stage, present in on.items() if present]

    @property
    def name(self) -> str:
        """Of the triple and its composites, for example ``cutlass.matmul_bias_gelu``."""
        sides = ("a" if self.transposed_a else "") + ("b" if self.transposed_b else "")
        name = f"cutlass.{PREFIX}" + (f"_transposed_{sides}" if sides else "")
        return name if self.epilogue == "none" else f"{name}_{self.epilogue}"


def forms() -> Iterator[Form]:
    """Every form, by rising priority: longer chains go before what they contain."""
    yield Form()
    for a, b in ((True, False), (False, True), (True, True)):
        yield Form(a, b)
    for activation in ACTIVATIONS:
        yield Form(activation=activation)
    for residual in RESIDUALS:
        yield Form(residual=residual)
    yield Form(bias=True)
    for activation in ACTIVATIONS:
        yield Form(bias=True, activation=activation)
    for residual in RESIDUALS:
        yield Form(bias=True, residual=residual)
    for activation, residual in itertools.product(ACTIVATIONS, RESIDUALS):
        yield Form(bias=True, activation=activation, residual=residual)


def form_of(name: str) -> Form | None:
    """The form of that name, or None."""
    return next((form for form in forms() if form.name == name), None)


def pattern_table() -> list[PatternTriple]:
    """The pattern triples, by rising priority."""
    return [_triple(form) for form in forms()]


def _triple(form: Form) -> PatternTriple:
    a, b = wildcard(), wildcard()
    lhs = is_op("relax.permute_dims")(a) if form.transposed_a else a
    rhs = is_op("relax.permute_dims")(b) if form.transposed_b else b
    call = is_op("relax.matmul")(lhs, rhs)
    chain = Chain(call, {"root": call, "a": a, "b": b, "lhs": lhs, "rhs": rhs})
    checks: list[Predicate] = [derives(_product)]
    if form.bias:
        chain = with_bias(chain)
        chain = chain.then(chain.pattern, biased=chain.pattern)
        checks.append(_bias_per_column)
    if form.activation:
        chain, check = with_checked_activation(chain, form.activation)
        chain = chain.then(chain.pattern, activated=chain.pattern)
        checks.append(check)
    chain = with_joined_residual(chain, form.residual)
    if form.residual:
        checks += [residual_same_shape, _residual_from_outside]
    checks.append(_dtypes)
    return PatternTriple(form.name, chain.pattern, all_of(*checks), dict(chain.annotations))


def operand(expr: relax.Expr, taken: relax.Expr) -> Operand:
    """An operand as it lies in memory.

    Parameters
    ----------
    expr : relax.Expr
        As stored.
    taken : relax.Expr
        What the product takes: the same, or a ``permute_dims`` of it.

    Returns
    -------
    Operand
        Its shape is the stored one; ``transposed`` where the product takes the last two axes
        swapped.

    Raises
    ------
    UnsupportedProblemError
        When it has no matrices, or other axes than the last two change places.
    """
    shape = tensor_shape(expr)
    if shape is None:
        raise UnsupportedProblemError(f"an operand has no static shape: {expr.ty}")
    if len(shape) < 2:
        raise UnsupportedProblemError(f"an operand of shape {shape} is no matrix")
    if 0 in shape:
        raise UnsupportedProblemError(f"an operand is empty: shape {shape}")
    rank, axes = len(shape), permutation(taken)
    if axes is None:
        return Operand(shape)
    if axes != [*range(rank - 2), rank - 1, rank - 2]:
        raise UnsupportedProblemError(
            f"axes {axes} of an operand: only the last two may be swapped"
        )
    return Operand(shape, transposed=True)


def read_product(
    call: relax.Call, a: relax.Expr, b: relax.Expr, lhs: relax.Expr, rhs: relax.Expr
) -> GemmProblem:
    """The problem of a ``relax.matmul`` call.

    Parameters
    ----------
    call : relax.Call
        Its result's shape has the batch axes.
    a, b : relax.Expr
        The stored operands.
    lhs, rhs : relax.Expr
        What the product takes: ``a`` and ``b``, or ``permute_dims`` of them.

    Returns
    -------
    GemmProblem
        Of all rows at once, where one matrix is multiplied by every batch.

    Raises
    ------
    UnsupportedProblemError
        When the kernels cannot run it.
    """
    result = tensor_shape(call)
    if result is None:
        raise UnsupportedProblemError(f"the product has no static shape: {call.ty}")
    dtype = tensor_dtype(a)
    dtypes = {dtype, tensor_dtype(b), tensor_dtype(call)}
    if dtype not in DTYPE_BITS or len(dtypes) > 1:
        raise UnsupportedProblemError(
            f"operands and product have dtypes {sorted(dtypes)}; "
            f"all must have the same one of {', '.join(DTYPE_BITS)}"
        )
    return plan(operand(a, lhs), operand(b, rhs), result, dtype)


def _product(match: Match) -> GemmProblem:
    found = match.annotated
    return read_product(*(found[name] for name in ("root", "a", "b", "lhs", "rhs")))


def _bias_per_column(match: Match) -> Verdict:
    bias, result = tensor_shape(match.annotated["bias"]), tensor_shape(match.annotated["root"])
    if bias is None or result is None:
        return Verdict.no("the bias or the result has no static shape")
    if math.prod(bias) == 1:
        return Verdict.no("a bias of one element is not passed as a tensor")
    if bias[-1] != result[-1] or math.prod(bias) != result[-1] or len(bias) > len(result):
        return Verdict.no(f"bias of shape {bias} is not one value per column of {result}")
    return Verdict.yes()


def _residual_from_outside(match: Match) -> Verdict:
    """The residual is not itself a stage of the chain, as in ``x * sigmoid(x)``."""
    residual = match.annotated["residual"]
    stages = [match.annotated.get(name) for name in ("root", "biased", "activated")]
    if any(stage is not None and stage.same_as(residual) for stage in stages):
        return Verdict.no("the residual is computed by the chain that it is joined to")
    return Verdict.yes()


def _dtypes(match: Match) -> Verdict:
    dtype = tensor_dtype(match.annotated["root"])
    for name in ("bias", "residual"):
        if name in match.annotated and tensor_dtype(match.annotated[name]) != dtype:
            given = tensor_dtype(match.annotated[name])
            return Verdict.no(f"the {name} has dtype {given}, the product {dtype}")
    if tensor_dtype(match.root) != dtype:
        return Verdict.no(f"the result has dtype {tensor_dtype(match.root)}, the product {dtype}")
    return Verdict.yes()
