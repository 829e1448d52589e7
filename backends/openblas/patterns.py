"""What OpenBLAS can run: matrix products, alone or with what BLAS absorbs.

Bias and activation are fused as an epilogue; ``permute_dims`` on the operands or the result become
transpose flags and leading dimensions. The predicates ask the same planner that generates code.
"""

from __future__ import annotations

import itertools

from tvm import relax
from tvm.relax.dpl import DFPattern, is_op, wildcard

from collage.backends.base import Match, PatternTriple, Predicate, Verdict
from collage.backends.openblas.options import OpenBLASOptions
from collage.backends.openblas.problem import UnsupportedProblemError, View, matmul_views, plan
from collage.backends.patterns import (
    Chain,
    all_of,
    bias_per_channel,
    float32_tensors,
    tensor_shape,
    with_activation,
    with_bias,
)

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "tanh", "sigmoid")
"""Activations of the runtime's epilogue, by their names in ``backends.patterns``."""


def pattern_table(options: OpenBLASOptions) -> list[PatternTriple]:
    """The pattern triples, by rising priority."""
    triples = [_triple("openblas.matmul", _matmul())]
    if options.permutations:
        for lhs, rhs, result in itertools.product((False, True), repeat=3):
            if lhs or rhs or result:
                triples.append(_permuted(lhs, rhs, result))
    if options.epilogues:
        for activation in ACTIVATIONS:
            chain = with_activation(_matmul(), activation)
            triples.append(_triple(f"openblas.matmul_{activation}", chain))
        triples.append(_triple("openblas.matmul_bias", with_bias(_matmul()), _bias_of_matmul))
        for activation in ACTIVATIONS:
            chain = with_activation(with_bias(_matmul()), activation)
            triples.append(_triple(f"openblas.matmul_bias_{activation}", chain, _bias_of_matmul))
    return triples


def _matmul(lhs: DFPattern | None = None, rhs: DFPattern | None = None) -> Chain:
    left, right = lhs or wildcard(), rhs or wildcard()
    product = is_op("relax.matmul")(left, right)
    return Chain(product, {"lhs": left, "rhs": right})


def _permuted(lhs: bool, rhs: bool, result: bool) -> PatternTriple:
    named: dict[str, DFPattern] = {}
    operands = []
    for name, permuted in (("lhs", lhs), ("rhs", rhs)):
        source = wildcard()
        operands.append(is_op("relax.permute_dims")(source) if permuted else source)
        named[f"{name}_source"] = source
    chain = _matmul(*operands)
    chain = chain.then(chain.pattern, **named)
    if result:
        chain = chain.then(is_op("relax.permute_dims")(chain.pattern))
    where = zip(("lhs", "rhs", "result"), (lhs, rhs, result), strict=True)
    name = "openblas.matmul_permuted_" + "_".join(what for what, on in where if on)
    return _triple(name, chain)


def _triple(name: str, chain: Chain, *more: Predicate) -> PatternTriple:
    return PatternTriple(
        name, chain.pattern, all_of(float32_tensors, *more, _fits_blas), chain.annotations
    )


def _bias_of_matmul(match: Match) -> Verdict:
    rhs = tensor_shape(match.annotated["rhs"])
    if rhs is not None and len(rhs) == 1:
        return Verdict.no("the right operand is a vector, so the bias is not one value per column")
    return bias_per_channel(-1)(match)


def _fits_blas(match: Match) -> Verdict:
    try:
        lhs, rhs = (operand_view(match.annotated[name]) for name in ("lhs", "rhs"))
        plan(*matmul_views(lhs, rhs, result_view(match.root)))
    except UnsupportedProblemError as err:
        return Verdict.no(str(err))
    return Verdict.yes()


def permutation(expr: relax.Expr) -> list[int] | None:
    """The axes of a ``permute_dims`` call, or None for anything else."""
    if not isinstance(expr, relax.Call) or expr.op.name != "relax.permute_dims":
        return None
    rank = expr.args[0].ty.ndim
    axes = expr.attrs.axes
    given = list(reversed(range(rank))) if axes is None else [int(axis) for axis in axes]
    return [axis % rank for axis in given]


def operand_view(expr: relax.Expr) -> View:
    """How an operand lies in memory: through its ``permute_dims``, where it is one."""
    axes = permutation(expr)
    shape = tensor_shape(expr if axes is None else expr.args[0])
    if shape is None:
        raise UnsupportedProblemError(f"no static shape: {expr.ty}")
    return View.dense(shape) if axes is None else View.dense(shape).permuted(axes)


def result_view(root: relax.Expr) -> View | None:
    """Where the product goes when a ``permute_dims`` follows it: a view in the product's axes."""
    axes = permutation(root)
    shape = tensor_shape(root)
    if axes is None or shape is None:
        return None
    inverse = sorted(range(len(axes)), key=axes.__getitem__)
    return View.dense(shape).permuted(inverse)
